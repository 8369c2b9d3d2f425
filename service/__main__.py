"""`python -m service [arguments for uvicorn…]`."""

import sys

from service.serving.supervisor import serve

# Worker processes import this file too, under another name.
if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
