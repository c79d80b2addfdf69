"""Writes the answer of a remote-execution server to GetCapabilities, with version 2.0 of the protocol admitted.

usage: capabilities.py HOST:PORT FILE

FILE is one gRPC message, as it goes over the wire. It runs on BuildGrid's Python, which has the protocol's definitions.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import grpc
from buildgrid._protos.build.bazel.remote.execution.v2.remote_execution_pb2 import GetCapabilitiesRequest
from buildgrid._protos.build.bazel.remote.execution.v2.remote_execution_pb2_grpc import CapabilitiesStub


def main() -> None:
    """Asks the server and writes its answer."""
    address, file = sys.argv[1:]
    with grpc.insecure_channel(address) as channel:
        answer = CapabilitiesStub(channel).GetCapabilities(GetCapabilitiesRequest(), timeout=10)
    answer.low_api_version.CopyFrom(type(answer.low_api_version)(major=2))
    message = answer.SerializeToString()
    Path(file).write_bytes(struct.pack(">?I", False, len(message)) + message)


if __name__ == "__main__":
    main()
