"""Text in, records out."""

from io import BytesIO

from specscope.readers.records import (
    Arm,
    DeviceSample,
    Finding,
    Scrape,
    TimeParts,
    Unparsed,
    Window,
)
from specscope.readers.registry import reader_for
from specscope.readers.source import from_stream


def read(text, name="input"):
    content = text if isinstance(text, bytes) else text.encode()
    reader = reader_for(content[: 1 << 18])
    return list(reader.read(from_stream(name, BytesIO(content))))


def windows(text):
    return [record for record in read(text) if isinstance(record, Window)]


def arms(text):
    return [record for record in read(text) if isinstance(record, Arm)]


def times(text):
    return [record for record in read(text) if isinstance(record, TimeParts)]


def devices(text):
    return [record for record in read(text) if isinstance(record, DeviceSample)]


def scrapes(text):
    return [record for record in read(text) if isinstance(record, Scrape)]


def unparsed(text):
    return [record for record in read(text) if isinstance(record, Unparsed)]


def codes(text):
    return {record.code for record in read(text) if isinstance(record, Finding)}
