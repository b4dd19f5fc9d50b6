"""Readers of model and result files: exact, or an error that names the line and the column."""

from sklsb.io._formats import read_model, register
from sklsb.io._tokens import FormatError
from sklsb.io.qubo import read_maxcut, read_qubo
from sklsb.io.uai import UAIFormatError, read_evidence
from sklsb.io.uai_results import read_result, write_result

__all__ = [
    "FormatError",
    "UAIFormatError",
    "read_evidence",
    "read_maxcut",
    "read_model",
    "read_qubo",
    "read_result",
    "register",
    "write_result",
]
__dir__ = __all__.copy
