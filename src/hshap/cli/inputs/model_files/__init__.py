"""Model files: checks of ONNX files and their own process, files of torch, modules in Python."""
