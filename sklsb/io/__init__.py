"""Readers of model and result files: exact, or an error that names the line and the column."""

from sklsb.io._formats import Format, format_of, formats, read_model, register
from sklsb.io._tokens import FormatError
from sklsb.io.bif import BIFFormatError, read_bif
from sklsb.io.qubo import EdgeListFormatError, read_maxcut, read_qubo
from sklsb.io.uai import Model, UAIFormatError, read_evidence, read_uai, write_uai
from sklsb.io.uai_results import read_mar, read_mpe, read_pr, write_mar, write_mpe, write_pr

__all__ = [
    "BIFFormatError",
    "EdgeListFormatError",
    "Format",
    "FormatError",
    "Model",
    "UAIFormatError",
    "format_of",
    "formats",
    "read_bif",
    "read_evidence",
    "read_mar",
    "read_maxcut",
    "read_model",
    "read_mpe",
    "read_pr",
    "read_qubo",
    "read_uai",
    "register",
    "write_mar",
    "write_mpe",
    "write_pr",
    "write_uai",
]
