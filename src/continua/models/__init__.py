"""Networks with ODE blocks inside, and the discrete ones they are compared with."""

from collections.abc import Callable

from torch import nn

from continua.files import allow

from ._ablate import Ablation, ablate, local_exponents
from ._attention import EncoderLayer, SelfAttention
from ._augmented import Augmentation, augmented_classifier
from ._baseline import resnet, wide_resnet
from ._depth import AdaptiveDepth
from ._flow import ContinuousFlow
from ._image import ImageOptions, continuous_net, continuous_net_mnist, continuous_net_small
from ._jumps import Jumps
from ._latent import LatentODE
from ._maps import attention_maps
from ._quality import psnr, ssim
from ._residual_flow import residual_flow
from ._tagger import EncoderStack, Tagger, continuous_tagger, linear_tagger, transformer_tagger
from ._toy import continuous_classifier
from ._units import Activation, Norm, Residual, Stitch
from ._vgg import VGGDecoder, VGGEncoder
from ._video import GaussianLSTM, VideoPredictor, video_predictor

__all__ = [
    "MODELS",
    "Ablation",
    "Activation",
    "AdaptiveDepth",
    "Augmentation",
    "ContinuousFlow",
    "EncoderLayer",
    "EncoderStack",
    "GaussianLSTM",
    "ImageOptions",
    "Jumps",
    "LatentODE",
    "Norm",
    "Residual",
    "SelfAttention",
    "Stitch",
    "Tagger",
    "VGGDecoder",
    "VGGEncoder",
    "VideoPredictor",
    "ablate",
    "attention_maps",
    "augmented_classifier",
    "continuous_classifier",
    "continuous_net",
    "continuous_net_mnist",
    "continuous_net_small",
    "continuous_tagger",
    "linear_tagger",
    "local_exponents",
    "psnr",
    "residual_flow",
    "resnet",
    "ssim",
    "transformer_tagger",
    "video_predictor",
    "wide_resnet",
]

#: every model, by the name of the function that makes it
MODELS: dict[str, Callable[..., nn.Module]] = {
    factory.__name__: factory
    for factory in (
        continuous_net,
        continuous_net_small,
        continuous_net_mnist,
        resnet,
        wide_resnet,
        residual_flow,
        augmented_classifier,
        continuous_classifier,
        continuous_tagger,
        transformer_tagger,
        linear_tagger,
        video_predictor,
    )
}

allow("continua.models", MODELS | {"LatentODE": LatentODE})
