"""The backend qnn: ONNX models for Qualcomm's NPU (HTP), by ONNX Runtime's plugin for QNN.

The HTP computes with integers of 8 bits between QDQ pairs and with floats of 16 bits elsewhere, and
its compiler drops a pair that stands between floats. So the models clamp where a pair does
(`forms.py`), and updates are models of their own, which the CPU computes (`entries.py`).
"""
