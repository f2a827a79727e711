"""Names of the networks in `zoo`, for modules that must not import torch."""

ZOO = (
    "ResNet-18",
    "DenseNet-121-like",
    "VGG-like",
    "U-Net-like",
    "MobileNet-like",
    "EfficientNet-lite0",
)
SHORT = ("ConvNet", "MobileNet-like", "DenseNet-121-like", "ResNet-18")  # for runs of little
