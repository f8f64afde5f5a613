// Tests that doctor does not report a restart that Felix requested: Felix exits with code 129 to be restarted after a
// configuration change.
import { afterAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readParts } from "../../../src/calicoctl/doctor/read-parts.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { planChildren } from "../../../src/node/supervisor/children.ts";
import { Supervisor, type SupervisorState } from "../../../src/node/supervisor/supervisor.ts";

if (process.getuid?.() !== 0) throw new Error("run as root: doctor examines processes of other users");
const folder = mkdtempSync(join(tmpdir(), "calico-restart-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs a fake Felix that exits with this code and is not restarted. Returns the processes as doctor reads them. */
async function partsAfterExit(code: number, change: (state: SupervisorState) => SupervisorState = (state) => state) {
  const [felix] = planChildren({}, "n1", "none");
  if (felix === undefined) throw new Error("a node without Felix");
  const file = join(folder, `supervisor-${code}.json`);
  const state = () => JSON.parse(readFileSync(file, "utf8")) as SupervisorState;
  const ending = new AbortController();
  const supervisor = new Supervisor({
    plans: [
      {
        ...felix,
        command: ["sh", "-c", `exit ${code}`],
        env: process.env,
        startsWhen: () => !existsSync(file) || state().children[0]?.restarts === 0,
      },
    ],
    file,
    log: silentLogger,
    output: () => {},
  });
  const running = supervisor.run(ending.signal);
  try {
    await eventually(() => existsSync(file) && state().children[0]?.restarts === 1);
    writeFileSync(file, JSON.stringify(change(state())));
    return readParts({ supervisorFile: file, aliveFile: join(folder, "felix-alive"), answering: new Set() });
  } finally {
    ending.abort();
    await running;
  }
}

test("a Felix that is being restarted gives no finding", async () => {
  expect(await partsAfterExit(129)).toEqual([]);
});

test("a Felix that failed gives a finding", async () => {
  expect(await partsAfterExit(1)).toMatchObject([
    { name: "felix", isRunning: false, detail: expect.stringContaining("it is failing, and last ended with code 1") },
  ]);
});

test("a restart that does not happen in time gives a finding", async () => {
  const minuteAgo = new Date(Date.now() - 60_000).toISOString();
  const found = await partsAfterExit(129, (state) => ({
    ...state,
    children: state.children.map((child) => ({
      ...child,
      lastExit: { code: 129, signal: null, at: minuteAgo },
    })),
  }));
  expect(found).toMatchObject([{ name: "felix", isRunning: false, detail: expect.stringContaining("restarting") }]);
});
