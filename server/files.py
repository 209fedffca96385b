"""The files of a run folder.

config.toml        the complete configuration; `dncfl run config.toml` runs it again
metrics.jsonl      a line per round, see `RoundRecord`
trace.jsonl        a line per attempt, see `AttemptTrace`
model.safetensors  θ after the last round, as named tensors
summary.json       what a script wants to know
run.png            accuracy, |W| and the links' outage as a picture
"""

CONFIG, METRICS, TRACE = "config.toml", "metrics.jsonl", "trace.jsonl"
MODEL, SUMMARY, PICTURE = "model.safetensors", "summary.json", "run.png"
