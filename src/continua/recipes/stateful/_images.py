"""The image classifiers of Stateful ODE-Nets."""

from __future__ import annotations

from dataclasses import replace

from continua.train import Training

from .._image_setup import ImageSetup
from .._recipe import Recipe

#: the paper's own course on images: SGD, rate 0.1, a tenth at 80, 120 and 160 of 180 epochs
PAPER = Training(
    epochs=180,
    batch_size=128,
    learning_rate=0.1,
    nesterov=False,
    weight_decay=5e-4,
    schedule="step",
    milestones=(80, 120, 160),
    refine_epochs=(20, 40, 70, 90),
)

digits = Recipe(
    "stateful/digits",
    "the embedded digits, refined while training",
    {
        "smoke": ImageSetup(
            data="digits", stages=2, width=8, epsilon=2.0, pad=1, samples=256,
            training=Training(epochs=4, batch_size=64, refine_epochs=(1, 2), warmup=0.5),
        ),
        "laptop": ImageSetup(
            data="digits", stages=2, epsilon=2.0, pad=1, label_smoothing=0.1,
            training=Training(
                epochs=30, batch_size=64, refine_epochs=(5, 12), warmup=3, weight_decay=1e-3
            ),
        ),
        "full": ImageSetup(
            data="digits", stages=2, epsilon=2.0, pad=1, label_smoothing=0.1,
            training=Training(
                epochs=60, batch_size=64, refine_epochs=(10, 20, 35), warmup=6, weight_decay=1e-3
            ),
        ),
    },
    {"smoke": "seconds", "laptop": "about a minute on two cores", "full": "a few minutes"},
)  # fmt: skip

mnist = Recipe(
    "stateful/mnist",
    "MNIST with the paper's MNIST ContinuousNet, refined while training",
    {
        "smoke": ImageSetup(
            data="mnist", model="continuous_net_mnist", channels_last=True, pad=2, samples=512,
            training=Training(epochs=3, refine_epochs=(1,), warmup=0.5),
        ),
        "laptop": ImageSetup(
            data="mnist", model="continuous_net_mnist", channels_last=True, pad=2, epsilon=2.0,
            # The last refinement comes late, at a low rate: neighbouring buckets stay alike, and
            # halving costs little.
            training=Training(
                epochs=14, refine_epochs=(2, 5, 11), schedule="one-cycle", warmup=2,
                learning_rate=0.1,
            ),
        ),
        "full": ImageSetup(
            data="mnist", model="continuous_net_mnist", channels_last=True, training=PAPER
        ),
    },
    {"smoke": "seconds", "laptop": "about 40 minutes on two cores", "full": "hours; use a GPU"},
)  # fmt: skip

cifar10 = Recipe(
    "stateful/cifar10",
    "CIFAR-10 with the deep ContinuousNet of width 16, refined while training",
    {
        "smoke": ImageSetup(
            data="cifar10", channels_last=True, pad=4, mirror=True, samples=512,
            training=Training(epochs=2, refine_epochs=(1,), warmup=0.5),
        ),
        "laptop": ImageSetup(
            data="cifar10", channels_last=True, pad=4, mirror=True, epsilon=2.0,
            training=Training(
                epochs=24, refine_epochs=(8, 16), schedule="one-cycle", warmup=5,
                learning_rate=0.2,
            ),
        ),
        "night": ImageSetup(
            data="cifar10", channels_last=True, pad=4, mirror=True, epsilon=2.0,
            training=Training(
                epochs=30, refine_epochs=(8, 15, 22), schedule="one-cycle", warmup=5,
                learning_rate=0.2, precision="bf16",
            ),
        ),
        "full": ImageSetup(
            data="cifar10", channels_last=True, pad=4, mirror=True, training=PAPER
        ),
    },
    {
        "smoke": "seconds",
        "laptop": "one to two hours on two cores; the paper trains 180 epochs to 16 functions",
        "night": "an hour of one core, estimated; to 8 functions",
        "full": "the paper's 180 epochs; use a GPU",
    },
)  # fmt: skip

RESNET = ImageSetup(
    data="cifar10", model="resnet", units=4, channels_last=True, pad=4, mirror=True,
    training=Training(epochs=24, schedule="one-cycle", warmup=5, learning_rate=0.2),
)  # fmt: skip

cifar10_resnet = Recipe(
    "stateful/cifar10-resnet",
    "CIFAR-10 with the discrete ResNet of as many parameters",
    {
        "smoke": replace(RESNET, units=2, samples=512, training=Training(epochs=2, warmup=0.5)),
        "laptop": RESNET,
        "night": replace(
            RESNET, units=8, training=replace(RESNET.training, epochs=30, precision="bf16")
        ),
        "full": replace(RESNET, units=16, training=replace(PAPER, refine_epochs=())),
    },
    {
        "smoke": "seconds",
        "laptop": "about 80 minutes on two cores",
        "night": "an hour and a half of one core, estimated",
        "full": "the paper's 180 epochs; use a GPU",
    },
)

cifar100 = Recipe(
    "stateful/cifar100",
    "CIFAR-100 with the wide ContinuousNet, width 64",
    {
        "smoke": ImageSetup(
            data="cifar100", width=16, channels_last=True, pad=4, mirror=True, samples=512,
            training=Training(epochs=2, refine_epochs=(1,), warmup=0.5),
        ),
        "full": ImageSetup(
            data="cifar100", width=64, channels_last=True, pad=4, mirror=True,
            training=Training(
                epochs=160, nesterov=False, schedule="step", milestones=(80, 120, 140),
                refine_epochs=(20, 50, 80),
            ),
        ),
    },
    {"smoke": "seconds", "full": "the paper's setting; use a GPU"},
)  # fmt: skip
