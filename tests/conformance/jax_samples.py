"""Public functions of JAX without a sample; `jax_functions.txt` has samples of the others."""

DEVICES = """
all_gather all_to_all axis_index axis_size pbroadcast pcast pmax pmean pmin ppermute precv psend
pshuffle psum psum_scatter pswapaxes ragged_all_to_all with_sharding_constraint
"""
"""Functions of lax on several devices, used within a map over them."""

HOST = """
after_all array_repr array_str astype broadcast_shapes broadcast_to_rank can_cast collapse
conv_dimension_numbers conv_general_dilated_local conv_general_permutations
conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple create_token dce_sink dtype
einsum_path empty from_dlpack frombuffer fromfile fromfunction fromiter frompyfunc fromstring
get_printoptions get_scaled_dot_general_config isdtype issubdtype iterable load padtype_to_pads
printoptions promote_types reduce_window_shape_tuple result_type save savez set_printoptions
shape_as_value ConvGeneralDilatedDimensionNumbers DotDimensionNumbers PrecisionLike
"""
"""Functions that return shapes and types, or that read and write files."""

BY_DATA = """
argwhere choose compress delete extract flatnonzero insert intersect1d nonzero piecewise place put
roots setdiff1d setxor1d trim_zeros union1d unique unique_all unique_counts unique_inverse
unique_values
"""
"""Functions with results of data-dependent shape, or that write into arrays."""

RANDOM = "rng_bit_generator rng_uniform"
"""Functions that draw random bits."""
