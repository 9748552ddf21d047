"""The backend qnn: ONNX models for Qualcomm's NPU (HTP), by ONNX Runtime's plugin for QNN.

The HTP computes with 8-bit integers between QDQ pairs and with 16-bit floats elsewhere, and its
compiler drops a pair between floats. So the models clamp where a pair would (`forms.py`), and
updates are separate models, which run on the CPU (`entries.py`).
"""
