import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hostpathInit } from "./commands.ts";
import { runCaptured } from "../../lib/command-line/testing/run-captured.ts";
import { COMPONENT, HEALTH, NODE } from "../table.ts";

const exitCodeOf = async (...call: Parameters<typeof runCaptured>): Promise<number> =>
  (await runCaptured(...call)).code;
const component = (words: readonly string[]) => exitCodeOf(COMPONENT, words);
const health = (words: readonly string[]) => exitCodeOf(HEALTH, words);
const node = (words: readonly string[]) => exitCodeOf(NODE, words);

test("NB-016 the host's folders are created for the user of the node only", () => {
  const root = mkdtempSync(join(tmpdir(), "hostpath-"));
  try {
    mkdirSync(join(root, "var/log/calico/cni"), { recursive: true });
    writeFileSync(join(root, "var/log/calico/cni/cni.log"), "");
    const user = process.getuid?.() ?? 0;
    expect(hostpathInit(String(user), root)).toBe(0);
    for (const folder of ["var/lib/calico", "var/run/calico"]) {
      const stat = statSync(join(root, folder));
      expect([stat.uid, stat.mode & 0o777]).toEqual([user, 0o700]);
    }
    expect(() => hostpathInit("nobody", root)).toThrow("NODE_USER_ID=nobody");
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

test("NB-014 calico health requests any program's health endpoint", async () => {
  const paths: string[] = [];
  let status = 204;
  const server = createServer((request, response) => {
    paths.push(request.url ?? "");
    response.writeHead(status).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const port = String((server.address() as { port: number }).port);
  expect(await health(["--port", port, "--host", "127.0.0.1"])).toBe(0);
  expect(await health(["--port", port, "--host=127.0.0.1", "--type=liveness"])).toBe(0);
  expect(paths).toEqual(["/readiness", "/liveness"]);
  status = 503;
  expect(await health(["--port", port, "--host", "127.0.0.1"])).toBe(1);
  server.close();
  for (const bad of [
    [],
    ["--port", "x"],
    ["--port", "1", "--type", "z"],
    ["--port", "1", "--timeout", "z"],
    ["--nope"],
  ])
    expect(await health(bad)).toBe(2);
});

test("NB-002 an unknown part is a usage error", async () => {
  expect(await component([])).toBe(0); // prints its help
  expect(await component(["toString"])).toBe(2);
  expect(await component(["node", "nonsense"])).toBe(2);
  expect(await component(["node", "health"])).toBe(2);
  expect(await component(["node", "version"])).toBe(0);
});

test("NB-001 an unknown flag or argument is a usage error, whatever else is given", async () => {
  for (const words of [
    ["-startup", "-bogus"],
    ["-confd", "-bogus=1"],
    ["-v", "bogus"],
    ["-bird-live", "-threshold-time", "1s", "1s"],
    ["-felix-live", "--nope"],
    ["bogus"],
    ["-felix", "-startup"],
    ["-purge"],
    ["-threshold-time", "5s"],
    ["-felix-live", "-threshold-time", "soon"],
  ])
    expect(await node(words)).toBe(2);
  expect(await node(["--v"])).toBe(0);
});

test("NB-053 renewing the CNI plugin's token without Kubernetes fails", async () => {
  expect(process.env["KUBERNETES_SERVICE_HOST"]).toBeUndefined();
  expect(await node(["-monitor-token"])).toBe(1);
});
