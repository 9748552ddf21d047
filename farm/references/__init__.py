"""The engines compared with ours in a table: PyTorch, TensorFlow, and guest instructions.

How a bench uses them (none of these imports a framework):

    data = JobData(Job("mobilenet_v2-0.35-96", classes=2), weights, images, labels)     # job.py
    write_job(folder, data)
    with open_own_worker(artifact, folder, threads=2) as ours, \\
            open_worker("torch-eager", folder, threads=2) as torch, \\
            open_worker("tf-graph", folder, threads=2) as tensorflow:                # worker.py
        expected = torch.train()              # .losses and .tensors by name: what ours must equal
        timings = interleave({"pockengine": ours, "torch-eager": torch,
                              "tf-graph": tensorflow}, rounds=10, steps=5)           # timing.py
        memory = tensorflow.peak_rss()

Other than a worker, anything with `step(count) -> milliseconds of each` can be interleaved. The
memory of TensorFlow and PyTorch is that of their whole process. Engines are listed in engines.py;
`is_available` says whether one can run here. `Job.trainable` comes from a scheme:
`{name: c and (c.start, c.stop) for name, c in scheme.resolve(graph).items()}`.

On an emulated board instructions take the place of time:

    ours = count_twice([binary, "train", ...], marks=steps)                    # instructions.py
    figures = cached_guest(data, "tensorflow")    # None: print HOW_TO_GET            guest.py
    figures = measure_guest(data, expected.losses, "tensorflow")  # with --reference=tensorflow
"""
