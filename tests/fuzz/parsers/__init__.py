"""Every parser of the library by name, with its share of the inputs. A parser is one function of a file here."""

from __future__ import annotations

from fuzz.parsers import archives, caches, command_line, images, learning, other, outside, run_folders, settings, tables
from fuzz.parsers.parser import Entry, Parser

__all__ = ["PARSERS", "Entry", "Parser"]

PARSERS: dict[str, Entry] = {
    "answers": Entry(other.answers, 2),
    "command line": Entry(command_line.misuse, 2.2),
    "concept": Entry(tables.concept, 2),
    "config": Entry(settings.config, 2),
    "dicom": Entry(images.dicom, 2),
    "encoder weights": Entry(other.encoder_weights, 0.15),
    "estimator": Entry(other.estimator, 0.2),
    "features csv": Entry(tables.features_csv, 1),
    "features parquet": Entry(tables.features_parquet, 1),
    "image": Entry(images.photos, 8),
    "model of config.yaml": Entry(other.config_as_model, 0.2),
    "model of result.json": Entry(other.result_as_model, 0.2),
    "npz": Entry(tables.npz, 3),
    "over": Entry(settings.over, 5),
    "predictions": Entry(tables.predictions, 0.2),
    "preset": Entry(settings.preset, 2),
    "record": Entry(other.record, 0.5),
    "benchmark table": Entry(tables.benchmark, 2),
    "seeds": Entry(settings.seeds_option, 4),
    "set": Entry(settings.override, 5),
    "shards": Entry(tables.shards, 1),
    "state": Entry(other.state, 0.15),
    "sweep": Entry(other.sweep, 4),
    "table csv": Entry(tables.table_csv, 2),
    "table parquet": Entry(tables.table_parquet, 2),
    "tiff": Entry(images.tiff, 4),
    "value": Entry(other.expression, 2),
    "weights": Entry(other.weights, 0.3),
    "answer lines": Entry(outside.answer_lines, 1),
    "claims": Entry(learning.claims, 0.2),
    "concept table": Entry(learning.concept_table, 1),
    "entry points": Entry(outside.entry_points, 0.1),
    "file names": Entry(archives.names, 1),
    "image shard": Entry(archives.image_shard, 1),
    "image shards": Entry(tables.image_shards, 1),
    "list": Entry(archives.text, 2),
    "nuisances": Entry(learning.nuisances, 1),
    "requests": Entry(outside.requests, 2),
    "table of runs": Entry(learning.table, 0.3),
    "tar": Entry(archives.tarred, 1),
    "trials": Entry(learning.trials, 0.1),
    "unlabelled": Entry(learning.unlabelled, 1),
    "variables": Entry(outside.variables, 2),
    "zip": Entry(archives.zipped, 2),
    **caches.ENTRIES,
    **learning.ENTRIES,
    **run_folders.ENTRIES,
}
