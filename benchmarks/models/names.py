"""Names of the networks in `zoo`, for those who must not import torch to know them."""

ZOO = (
    "ResNet-18",
    "DenseNet-121-like",
    "VGG-like",
    "U-Net-like",
    "MobileNet-like",
    "EfficientNet-lite0",
)
SHORT = ("ConvNet", "MobileNet-like", "DenseNet-121-like", "ResNet-18")  # for runs of little
