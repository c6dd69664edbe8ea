"""Artifacts in a bucket of moto, an S3 that is not ours: written whole and in pieces, read by ranges, gone with their task."""

import hashlib
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from cluster import Processes, accepts, free_port, until

# More than a piece of an upload, and not a multiple of one.
WHOLE, PIECES = 200_001, 20_000_003

AGENT = """
import base64, json, sys
for line in sys.stdin:
    if json.loads(line)["type"] != "turn":
        continue
    say = lambda **line: print(json.dumps(line), flush=True)
    whole = base64.b64encode(b"w" * {whole}).decode()
    open("pieces.bin", "wb").write(b"p" * {pieces})
    say(type="artifact", artifact={{"artifactId": "whole", "parts": [{{"raw": whole, "filename": "whole.bin"}}]}})
    say(type="artifact", artifact={{"artifactId": "pieces", "parts": [{{"file": "pieces.bin"}}]}})
    say(type="end", message={{"parts": [{{"text": "done"}}]}})
"""


class Cluster(Processes):
    """A bucket, a gateway and a worker."""

    def __init__(self, folder):
        bucket, listen = free_port(), free_port()
        (folder / "agent.py").write_text(AGENT.format(whole=WHOLE, pieces=PIECES))
        (folder / "work").mkdir()
        super().__init__(
            folder,
            f'[artifacts]\nstore = "s3://bucket/relevo"\ns3_endpoint = "http://127.0.0.1:{bucket}"\ns3_allow_http = true\n'
            's3_region = "us-east-1"\ns3_access_key_id = "key"\ns3_secret_access_key = "secretsecret"\n'
            f'[gateway]\npublic_url = "http://127.0.0.1:{listen}"\n'
            '[retention]\ntask = "5s"\njournal = "5s"\nidempotency = "5s"\n'
            f'[agents.files]\nkind = "process"\ncommand = ["{sys.executable}", "{folder}/agent.py"]\ncwd = "{folder}/work"\n',
        )
        self.start(sys.executable, Path(sys.executable).parent / "moto_server", "-H", "127.0.0.1", "-p", bucket)
        until("moto", lambda: accepts(bucket))
        self.s3 = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{bucket}",
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secretsecret",
            config=Config(s3={"addressing_style": "path"}),
        )
        self.s3.create_bucket(Bucket="bucket")
        self.member("gateway", "--listen", f"127.0.0.1:{listen}")
        self.member("worker")
        self.url = f"http://127.0.0.1:{listen}"

    def objects(self):
        return {found["Key"].rsplit("/", 1)[1]: found["Size"] for found in self.s3.list_objects_v2(Bucket="bucket").get("Contents", [])}

    def uploads(self):
        return self.s3.list_multipart_uploads(Bucket="bucket").get("Uploads", [])


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


def fetch(url, **headers):
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)


def test_artifacts_are_in_the_bucket_until_their_task_goes(cluster):
    message = {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "go"}]}}
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    ask = urllib.request.Request(f"{cluster.url}/message:send", data=json.dumps(message).encode(), headers=headers)
    task = json.loads(urllib.request.urlopen(ask, timeout=60).read())["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    contents = {"whole": b"w" * WHOLE, "pieces": b"p" * PIECES}
    digests = {hashlib.sha256(content).hexdigest(): len(content) for content in contents.values()}
    assert cluster.objects() == digests
    assert cluster.uploads() == []
    for artifact in task["artifacts"]:
        (part,), content = artifact["parts"], contents[artifact["artifactId"]]
        digest = hashlib.sha256(content).hexdigest()
        assert part["metadata"] == {"byteSize": len(content), "sha256": digest}
        assert fetch(part["url"]).read() == content
        ranged = fetch(part["url"], Range=f"bytes=7-{len(content)}")
        assert (ranged.status, ranged.headers["ETag"]) == (206, f'"{digest}"')
        assert ranged.read() == content[7:]
        with pytest.raises(urllib.error.HTTPError) as none:
            fetch(part["url"], Range=f"bytes={len(content)}-")
        assert none.value.code == 416
    until("the bucket to be empty", lambda: not cluster.objects())
