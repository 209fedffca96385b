"""The files of a run folder.

config.toml        the complete configuration; `dncfl run config.toml` runs it again
metrics.jsonl      a line per round, see `RoundRecord`
trace.jsonl        a line per attempt, see `AttemptTrace`
checkpoint.safetensors  θ after the last round that is done, as one vector, and the round's number: where --resume goes on
faults.jsonl       a line per injected fault, where there are any
model.safetensors  θ after the last round, as named tensors
summary.json       what a script wants to know
run.png            accuracy, |W| and the links' outage as a picture
"""

CONFIG, METRICS, TRACE = "config.toml", "metrics.jsonl", "trace.jsonl"
CHECKPOINT, FAULTS = "checkpoint.safetensors", "faults.jsonl"
MODEL, SUMMARY, PICTURE = "model.safetensors", "summary.json", "run.png"
