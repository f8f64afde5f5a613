// Tests that entries of etcd that cannot be parsed are reported by key and skipped, and all others are printed.
import { expect, test } from "bun:test";
import { CommandLine, networkSet } from "../../../src/calicoctl/testing/command-line.ts";
import { EtcdServer } from "../../support/etcd-server.ts";

test("an entry that cannot be parsed is reported by its key and skipped", async () => {
  await using etcd = await EtcdServer.start();
  using line = new CommandLine();
  line.env["DATASTORE_TYPE"] = "etcdv3";
  line.env["ETCD_ENDPOINTS"] = etcd.url;
  await line.given(networkSet("good"));
  const key = "/calico/resources/v3/projectcalico.org/globalnetworksets/bad";
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const body = JSON.stringify({ key: base64(key), value: base64('{"kind": ') });
  expect((await fetch(`${etcd.url}/v3/kv/put`, { method: "POST", body })).ok).toBe(true);
  const answer = await line.run("get", "globalnetworksets");
  expect(answer).toMatchObject({ code: 0, out: "NAME   \ngood   \n\n" });
  expect(answer.err).toContain(key);
  expect((await line.run("get", "globalnetworkset", "bad")).code).toBe(1);
}, 30_000);
