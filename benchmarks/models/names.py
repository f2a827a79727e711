"""Names of the networks in `zoo`, for modules that must not import torch."""

ZOO = (
    "ResNet-18",
    "DenseNet-121-like",
    "VGG-like",
    "U-Net-like",
    "MobileNet-like",
    "EfficientNet-lite0",
    "ConvNeXt-T",
    "RegNetX-400MF-like",
    "RegNetY-400MF-like",
    "MobileNet-v3-like",
    "EfficientNet-B0-like",
    "ResNet-18-GN",
)
SHORT = ("ConvNet", "MobileNet-like", "DenseNet-121-like", "ResNet-18")  # for runs of little
