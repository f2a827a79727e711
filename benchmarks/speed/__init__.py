"""What the library costs beside the model."""
