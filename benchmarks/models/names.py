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
NARROW = ("FCN of 16 channels", "U-Net of 16 channels", "VGG of 16 channels")
SHORT = ("ConvNet", "MobileNet-like", "DenseNet-121-like", "ResNet-18")  # for runs of little
