"""Train with the Trainer of Hugging Face transformers: the model computes its loss, and the Trainer stays as it is."""

import tempfile

import torch
from planted import SIZE, images, worst_group
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments
from transformers.modeling_outputs import ImageClassifierOutputWithNoAttention

from sitar.nn import RunningMoments, TargetedNoise, consistency_loss


class RobustResNet(ResNetForImageClassification):
    """A ResNet whose features get noise on their way to the head. `from_pretrained` works as before."""

    accepts_loss_kwargs = False  # the loss is the mean of a batch: the Trainer divides it by the batches of a step

    def __init__(self, config: ResNetConfig, alpha: float = 1.0, lambda_: float = 10.0) -> None:
        super().__init__(config)
        self.noise = TargetedNoise(config.hidden_sizes[-1], config.num_labels, alpha=alpha, momentum=0.1)
        self.lambda_ = lambda_

    def _init_weights(self, module: nn.Module) -> None:
        """Initialise what `from_pretrained` does not find in a checkpoint. Without this it would stay empty memory."""
        super()._init_weights(module)
        if isinstance(module, (TargetedNoise, RunningMoments)):
            module.reset_parameters()

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None, **_: object):
        features = self.resnet(pixel_values).pooler_output.flatten(1)
        logits, loss = self.classifier(features), None
        if labels is not None:
            noisy_logits = self.classifier(self.noise(features, labels))
            loss = cross_entropy(noisy_logits, labels) + self.lambda_ * consistency_loss(logits, noisy_logits)
        return ImageClassifierOutputWithNoAttention(loss=loss, logits=logits)


class Images(Dataset):
    """Generated images, as the Trainer wants them: one dictionary for each."""

    def __init__(self, number: int, seed: int) -> None:
        self.x, self.y, _ = images(number, agreement=0.95, seed=seed)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.x[index], "labels": self.y[index]}


class Logits(nn.Module):
    """Return the logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits


def train(alpha: float, lambda_: float, seed: int = 0, epochs: int = 4, *, cpu: bool = False) -> tuple[float, float]:
    """Return the accuracy of the worst group on new images, and the highest score of a feature."""
    torch.manual_seed(seed)
    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1], layer_type="basic", num_labels=2
    )
    model = RobustResNet(config, alpha, lambda_)  # random weights
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=50,
            learning_rate=2e-3,
            seed=seed,
            use_cpu=cpu,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        Trainer(model, arguments, train_dataset=Images(800, seed)).train()
    return worst_group(Logits(model.cpu().eval()), seed), model.noise.scores.max().item()


if __name__ == "__main__":
    print(f"Images of {SIZE} x {SIZE} pixels.")
    for name, (alpha, lambda_) in {"without noise": (0.0, 0.0), "with noise": (1.0, 10.0)}.items():
        accuracy, score = train(alpha, lambda_)
        print(f"worst group, {name}: {accuracy:.3f} (highest score of a feature: {score:.2f})")
