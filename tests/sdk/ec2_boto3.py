"""EC2: the SDK makes the token, signs every attempt anew, and retries by itself."""

from aws import client
from call import CALLS, SCENARIO, check, main

ec2 = client("ec2")


def create(amount, key):
    own_key = SCENARIO == "mismatch" or CALLS > 1
    # The amount decides what is started, so that another amount is another request.
    answer = ec2.run_instances(
        ImageId=f"ami-{amount}",
        InstanceType="t3.micro",
        MinCount=1,
        MaxCount=1,
        **({"ClientToken": key} if own_key else {}),
    )
    instance = answer["Instances"][0]
    check(instance["ImageId"], f"ami-{amount}", answer)
    return answer, instance["InstanceId"]


def read(_key):
    answer = ec2.describe_instances()
    return answer, str(len(answer["Reservations"]))


main("boto3", create, read=read)
