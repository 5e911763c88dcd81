"""A run folder holds everything of a run. This room reads and writes its files, and no other module opens one.

config.yaml       every setting
metrics.jsonl     one line for each epoch: phase, epoch, the terms of the loss, accuracies
result.json       the contract with other programs (RESULT_VERSION)
predictions.npz   logits, labels and groups of every evaluation split, and what its metrics know of the training groups
environment.json  commit, versions, device, seed, checksum of the data
checkpoint/       model.safetensors, encoder.safetensors where it is frozen, and state.pt while the run is not done
export/           model.onnx and model.pt2 with their checksums, where `sitar export` has written them
trackers/         what TensorBoard, W&B and MLflow keep of the run, where train.log names them
estimator.json    where an estimator of scikit-learn made the run: its class, parameters, classes and feature names
artifacts/        what a report shows and only a model can make: explain.json with .npz files, theory.json, audit/
unfinished        while the run is not done: the checksums of those files that a resumed run reads again
done              written last: the checksum of every file above but state.pt, which is compared when one is read

`RunFolder` writes these files, and reads them one by one. `Run` is a finished run, read once. Neither needs torch:
weights and checkpoints are bytes here, and every table and figure is rebuilt from a folder alone.
"""

from sitar.run_folder.artifacts import explain_command
from sitar.run_folder.checksums import Arrays
from sitar.run_folder.folder import RunFolder, UnwrittenFolder
from sitar.run_folder.layout import EXPORTS, LOCK, folder_names
from sitar.run_folder.run import UNLABELLED_CHECKSUM, Run
from sitar.run_folder.schema import RESULT_VERSION, Result
from sitar.run_folder.settings import INERT, PLACES, differences, flat, preset_name, without_places

__all__ = [
    "EXPORTS",
    "INERT",
    "LOCK",
    "PLACES",
    "RESULT_VERSION",
    "UNLABELLED_CHECKSUM",
    "Arrays",
    "Result",
    "Run",
    "RunFolder",
    "UnwrittenFolder",
    "differences",
    "explain_command",
    "flat",
    "folder_names",
    "preset_name",
    "without_places",
]
