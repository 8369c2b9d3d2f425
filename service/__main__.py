"""The start of the service: `python -m service [arguments for uvicorn…]`."""

import sys

from service.serving.supervisor import serve

if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
