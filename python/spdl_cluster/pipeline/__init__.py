"""Pipelines of your own steps, in this process: a source, operations with their own concurrency, and a sink that a loop takes
from. Names and meaning are those of SPDL's `PipelineBuilder`.

    from spdl_cluster.pipeline import PipelineBuilder

    pipeline = (
        PipelineBuilder()
        .add_source(urls)
        .pipe(download, concurrency=4)
        .pipe(decode, concurrency=8)
        .aggregate(32)
        .pipe(collate)
        .add_sink(3)
        .build(num_threads=8)
    )
    with pipeline.auto_stop():
        for batch in pipeline.get_iterator(timeout=30):
            ...

Every queue is bounded, so a slow stage holds up the stages before it. The first failure ends the pipeline with
`PipelineFailure`, unless `max_failures` lets some pass.
"""

from ..errors import PipelineFailure, PipelineTimeout
from .builder import PipelineBuilder
from .running import Pipeline, PipelineIterator, build_pipeline
from .stats import StageStats

__all__ = [
    "Pipeline",
    "PipelineBuilder",
    "PipelineFailure",
    "PipelineIterator",
    "PipelineTimeout",
    "StageStats",
    "build_pipeline",
]
