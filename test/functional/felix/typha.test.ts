// Tests that Felix sends the same messages to its driver with Typha as without it.
import { join } from "node:path";
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { FelixProcess } from "../../support/felix-process.ts";
import { freePort } from "../../support/free-port.ts";

const HOST_METADATA = 14;
const IN_SYNC = 1;

test("FC-018 an agent with Typha receives its updates, and continues after Typha restarts", async () => {
  await using felix = await FelixProcess.prepare();
  const port = await freePort();
  const startTypha = () =>
    Bun.spawn([process.execPath, join(import.meta.dir, "../../support/run-program.ts")], {
      env: {
        PATH: process.env["PATH"] ?? "",
        PROGRAM: "calico-typha",
        TYPHA_DATASTORETYPE: "sqlite",
        CALICO_SQLITE_PATH: join(felix.folder, "calico.db"),
        TYPHA_SERVERPORT: String(port),
        TYPHA_SERVERHOST: "127.0.0.1",
        TYPHA_LOGFILEPATH: "none",
      },
      stdout: "ignore",
      stderr: "ignore",
    });
  let typha = startTypha();
  try {
    felix.start({ FELIX_TYPHAADDR: `127.0.0.1:${port}` });
    await felix.untilReady();
    await eventually(() => felix.messages().some(({ tag }) => tag === IN_SYNC));
    const hosts = () => felix.messages().filter(({ tag }) => tag === HOST_METADATA).length;
    expect(hosts()).toBe(1);
    await felix.put("Node", "node-b", { bgp: { ipv4Address: "192.0.2.11/24" } });
    await eventually(() => hosts() === 2);
    typha.kill("SIGKILL");
    await typha.exited;
    await felix.put("Node", "node-c", { bgp: { ipv4Address: "192.0.2.12/24" } });
    typha = startTypha();
    await eventually(() => hosts() === 3, 30_000);
    expect(felix.isRunning).toBe(true);
    expect(felix.messages().filter(({ tag }) => tag === IN_SYNC)).toHaveLength(1);
  } finally {
    typha.kill("SIGKILL");
    await typha.exited;
  }
});
