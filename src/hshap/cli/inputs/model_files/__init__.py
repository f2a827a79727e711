"""Model files: ONNX in a sandbox, files of torch, and modules in Python."""
