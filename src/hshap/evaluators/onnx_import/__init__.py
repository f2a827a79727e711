"""ONNX files as torch modules, so that `Incremental` can run them."""
