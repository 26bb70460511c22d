"""The jobs of this project's loader that no run can finish."""


def job(name: str, dataset, settings, columns: list[dict], **keys) -> dict:
    """Returns a job of these columns, whose epochs continue within a batch."""
    of_all = {"name": name, "dataset": str(dataset), "global_batch": settings.batch, "epochs": 1000000, "epoch_end": "continuous"}
    return {**of_all, **keys, "column": columns}
