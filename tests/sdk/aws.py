"""A boto3 client of the test's upstream, with a known secret and the default retries."""

import boto3
from botocore.config import Config

from call import TIMEOUT, URL


def client(service):
    return boto3.client(
        service,
        endpoint_url=URL,
        region_name="eu-west-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=Config(read_timeout=TIMEOUT, connect_timeout=TIMEOUT),
    )
