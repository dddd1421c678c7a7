"""Push to the hub and pull from it with its own library, over HTTP, at an endpoint of this process.

Run as a program: the library reads where its endpoint is when it is imported.
"""

import base64
import hashlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY, COMMIT = "ann/bumps", "a" * 40
FILES: dict[str, bytes] = {}


class Endpoint(BaseHTTPRequestHandler):
    """As much of the hub as one commit and its download need."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answer(self, content: object, code: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        given = self.rfile.read(int(self.headers["Content-Length"]))
        address = f"http://{self.headers['Host']}/{REPOSITORY}"
        if self.path == "/api/repos/create":
            self.answer({"url": address, "name": REPOSITORY})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(given)["files"]]
            self.answer({"files": [file | {"shouldIgnore": False, "oid": None} for file in files]})
        else:
            for line in map(json.loads, given.splitlines()):
                if line["key"] == "file":
                    FILES[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer({"success": True, "commitOid": COMMIT, "commitUrl": f"{address}/commit/{COMMIT}"})

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1]
        if self.path.startswith(f"/{REPOSITORY}/resolve/") and name in FILES:
            digest = hashlib.sha1(FILES[name]).hexdigest()
            self.answer(FILES[name], ETag=f'"{digest}"', X_Repo_Commit=COMMIT)
        elif self.path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            self.answer([{"type": "file", "path": own, "size": len(FILES[own]), "oid": "0" * 40} for own in FILES])
        elif self.path.startswith(f"/api/models/{REPOSITORY}"):
            self.answer({"id": REPOSITORY, "sha": COMMIT, "siblings": [{"rfilename": own} for own in FILES]})
        else:
            self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET


def main(folder: Path) -> None:
    """Push a run, pull it, and ask for one that is not there."""
    server = ThreadingHTTPServer(("localhost", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {"HF_ENDPOINT": f"http://localhost:{server.server_port}", "HF_HOME": str(folder / "home")}
    import torch

    import recombine as rc
    from tests.small import small_spec
    from tests.store.test_pretrained import stored

    run = stored(folder / "store", small_spec("mlp"))
    address = run.push_to_hub(REPOSITORY, token="hf_secret")
    module = rc.from_pretrained(REPOSITORY)
    same = all(torch.equal(value, module.state_dict()[name]) for name, value in run.module().state_dict().items())
    try:
        rc.from_pretrained("ann/none")
    except rc.RecombineError as error:
        refusal = str(error)
    outcome = {"address": address.rpartition(":")[2].partition("/")[2], "files": sorted(FILES), "same": same}
    print(json.dumps(outcome | {"spec": rc.ModelConfig.from_pretrained(REPOSITORY).spec == run.spec, "none": refusal}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
