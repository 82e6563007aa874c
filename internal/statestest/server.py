"""Serves the Step Functions provider of LocalStack, and nothing else of it, as
AWS's JSON protocol at 127.0.0.1:PORT. Its own calls of other services go to
AWS_ENDPOINT_URL."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from localstack.aws.api import RequestContext
from localstack.aws.skeleton import Skeleton
from localstack.aws.spec import load_service
from localstack.http import Request
from localstack.services.stepfunctions.provider import StepFunctionsProvider

PORT, ACCOUNT, REGION = int(sys.argv[1]), sys.argv[2], sys.argv[3]

service = load_service("stepfunctions")
skeleton = Skeleton(service, StepFunctionsProvider())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        context = RequestContext(Request("POST", self.path, headers=dict(self.headers), body=body))
        context.service, context.account_id, context.region = service, ACCOUNT, REGION
        response = skeleton.invoke(context)
        text = response.get_data()
        self.send_response(response.status_code)
        for name, value in response.headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
