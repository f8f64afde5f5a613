import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { type Answer, FakeService, replyWith, StoppedService } from "../testing/fake-service.ts";

/** Runs the client in a separate process, because it blocks. It prints its outcome to standard error. */
const CLIENT = `
  import { callService } from ${JSON.stringify(join(import.meta.dir, "client.ts"))};
  import { readStandardInput } from ${JSON.stringify(join(import.meta.dir, "../../kernel/sys/standard-streams.ts"))};
  console.error(JSON.stringify(callService(readStandardInput(), process.env) ?? "declined"));
`;
const ADD = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/proc/self/ns/net",
  CNI_IFNAME: "eth0",
  CNI_ARGS: "IgnoreUnknown=1",
  CNI_PATH: "/opt/cni/bin",
};

let service: FakeService;
let program = "";
beforeAll(async () => {
  service = await FakeService.start();
  program = join(service.folder, "client.ts");
  writeFileSync(program, CLIENT);
});
afterAll(() => service[Symbol.asyncDispose]());

const conf = (more: Record<string, unknown> = {}): string =>
  JSON.stringify({ name: "net1", service_socket: service.path, ...more });

interface Run {
  readonly outcome: unknown;
  readonly stdout: string;
  readonly requests: readonly Buffer[];
}
async function call(env: Record<string, string> = ADD, stdin: string | Uint8Array = conf()): Promise<Run> {
  const before = service.requests.length;
  const child = Bun.spawn([process.execPath, program], {
    env: { PATH: process.env["PATH"] ?? "", SECRET: "no", ...env },
    stdin: typeof stdin === "string" ? Buffer.from(stdin) : stdin,
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, outcome] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  return { outcome: JSON.parse(outcome), stdout, requests: service.requests.slice(before) };
}
function parse(request: Buffer | undefined): { readonly env: unknown; readonly input: string } {
  const text = String(request);
  const line = text.indexOf("\n");
  return { env: (JSON.parse(text.slice(0, line)) as { env: unknown }).env, input: text.slice(line + 1) };
}

test("the request contains the CNI variables and the configuration, and the reply is printed", async () => {
  for (const [code, text] of [
    [0, '{"ips":[]}'],
    [1, '{"code":11}'],
    [0, ""],
    [0, "OK\n"],
  ] as const) {
    service.answer = replyWith(`${code}\n${text}\n`);
    const env = { ...ADD, FELIX_INTERFACEPREFIX: "tap" };
    const run = await call({ ...env, FELIX_X: "1" });
    expect([run.outcome, run.stdout]).toEqual([code, text]);
    expect(run.requests.map(parse)).toEqual([{ env, input: conf() }]);
  }
});

test("variables are sent unchanged, also with special characters", async () => {
  service.answer = replyWith("0\n\n");
  const unit = fc.oneof(
    fc.constantFrom('"', "\\", "\n", "\t", "\x01", "\x1f", "\x7f", "=", "ü", "网", "😀"),
    fc.string({ minLength: 1, maxLength: 1 }),
  );
  const value = fc.string({ unit }).map((given) => given.replaceAll("\0", "").toWellFormed());
  await fc.assert(
    fc.asyncProperty(value, async (args) => {
      const env = { ...ADD, CNI_ARGS: args };
      expect(parse((await call(env)).requests[0]).env).toEqual(env);
    }),
    { numRuns: 15 },
  );
}, 30_000);

test("a configuration of several megabytes and variables of 100 KB are sent completely", async () => {
  service.answer = replyWith("0\nfine\n");
  const input = conf({ comment: "größer ".repeat(400_000) });
  const env = { ...ADD, CNI_ARGS: `X=${"y".repeat(100_000)}` };
  const run = await call(env, input);
  expect(run.stdout).toBe("fine");
  const received = parse(run.requests[0]);
  expect([received.env, received.input === input]).toEqual([env, true]);
});

test("an incomplete reply is reported as a broken connection", async () => {
  const incomplete = ["", "0", "0\n", "1\n", "0\n{", "0\n{}", "2\n{}\n", "x\n{}\n", "00\n{}\n", "\n\n\n"];
  const more = ['{"declined":"x"}', " ", "   ", " 0", " 0\n", "  0\n{}", "0 \n{}\n", "\n0\n{}\n"];
  const answers: Answer[] = [...incomplete, ...more].map(replyWith);
  for (const answer of [...answers, (connection) => connection.destroy()] satisfies Answer[]) {
    service.answer = answer;
    const run = await call();
    expect([run.outcome, run.stdout, run.requests.length]).toEqual(["broken", "", 1]);
  }
}, 30_000);

test("after a declined request the plugin does the work itself", async () => {
  service.answer = replyWith('  {"declined":"x"}\n\n');
  expect(await call()).toMatchObject({ outcome: "declined", stdout: "" });
});

test("a reply in several parts, with keepalives before it, and a long reply are printed completely", async () => {
  service.answer = async (connection) => {
    connection.setNoDelay();
    for (const byte of "   0\n{}\n") {
      connection.write(byte);
      await Bun.sleep(5);
    }
    connection.end();
  };
  expect(await call()).toMatchObject({ outcome: 0, stdout: "{}" });
  const long = "größer ".repeat(300_000);
  service.answer = replyWith(`1\n${long}\n`);
  const run = await call();
  expect([run.outcome, run.stdout === long]).toEqual([1, true]);
});

test("if no service listens, the plugin does the work itself", async () => {
  const file = join(service.folder, "file");
  writeFileSync(file, "");
  const paths = [join(service.folder, "nobody"), file, service.folder, `/${"x".repeat(107)}`, "x".repeat(5000), ""];
  for (const path of paths) expect((await call(ADD, conf({ service_socket: path }))).outcome).toBe("declined");
});

test("a service that does not accept the request in time is reported as silent", async () => {
  await using stopped = await StoppedService.start(join(service.folder, "stopped"));
  const large = conf({ service_socket: stopped.path, comment: "x".repeat(700_000) });
  const status = { ...ADD, CNI_COMMAND: "STATUS" };
  const own = conf({ service_socket: stopped.path });
  const began = performance.now();
  const runs = await Promise.all([call(ADD, large), call(status, own)]);
  await stopped.fill();
  expect([...runs, await call(ADD, own)].map(({ outcome }) => outcome)).toEqual(["silent", "silent", "silent"]);
  expect(performance.now() - began).toBeWithin(7900, 25_000);
}, 40_000);

test("if standard input cannot be read, the plugin reports the error itself", async () => {
  const folder = openSync(service.folder, "r");
  const main = join(import.meta.dir, "../../main.ts");
  const env = { PATH: process.env["PATH"] ?? "", ...ADD };
  try {
    const child = Bun.spawn([process.execPath, main], { argv0: "calico", env, stdin: folder, stdout: "pipe" });
    expect(await new Response(child.stdout).text()).toContain("error reading from stdin");
    expect(await child.exited).toBe(1);
  } finally {
    closeSync(folder);
  }
});
