"""DynamoDB: the SDK makes the token, signs every attempt anew, and retries by itself."""

from aws import client
from call import CALLS, SCENARIO, main

dynamodb = client("dynamodb")


def create(amount, key):
    own_key = SCENARIO == "mismatch" or CALLS > 1
    answer = dynamodb.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": "orders", "Item": {"id": {"S": "o1"}, "n": {"N": str(amount)}}}}
        ],
        ReturnConsumedCapacity="TOTAL",
        **({"ClientRequestToken": key} if own_key else {}),
    )
    return answer, answer["ConsumedCapacity"][0]["TableName"]


def read(_key):
    answer = dynamodb.get_item(TableName="orders", Key={"id": {"S": "o1"}})
    return answer, answer["Item"]["id"]["S"]


main("boto3", create, read=read)
