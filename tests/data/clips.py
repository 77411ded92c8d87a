"""Reading all clips of a part."""

import torch


def everything(video, part, **options):
    index = torch.arange(len(getattr(video, part)))
    return video.clips(part, index, **options)
