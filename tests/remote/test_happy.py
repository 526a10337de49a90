def test_run(client):
    done = client.run("run-matrix", "--host", "gpu")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert client.statuses() == {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "pass"}
