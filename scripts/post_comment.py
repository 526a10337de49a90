"""Puts a Markdown file under a pull request, in place of the comment that it put there before.

    post_comment.py FILE NUMBER

For GitHub and Gitea alike: GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_TOKEN say where and as whom, as a job has
them. The file's first line is what the earlier comment is known by.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

PAGE = 50  # Gitea gives no more at once
SECONDS = 60


def main() -> int:
    path, number = sys.argv[1:]
    text = Path(path).read_text(encoding="utf-8")
    mark = text.split("\n", 1)[0]
    issues = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    try:
        earlier = [item["id"] for item in comments(f"{issues}/{int(number)}/comments") if item["body"].startswith(mark)]
        if earlier:
            ask("PATCH", f"{issues}/comments/{earlier[-1]}", {"body": text})
        else:
            ask("POST", f"{issues}/{int(number)}/comments", {"body": text})
    except urllib.error.HTTPError as error:
        print(f"post_comment: {error.url} answers {error.code} {error.reason}", file=sys.stderr)
        return 1
    except urllib.error.URLError as error:
        print(f"post_comment: {issues} cannot be reached: {error.reason}", file=sys.stderr)
        return 1
    return 0


def comments(url):
    page = 1
    while found := ask("GET", f"{url}?per_page={PAGE}&limit={PAGE}&page={page}"):
        yield from found
        page += 1
        if len(found) < PAGE:
            return


def ask(method, url, body=None):
    headers = {
        "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
        "Accept": "application/json",
        "Content-Type": "application/json",
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main())
