// The prologue in front of a small executable that tells how it was left: what is answered, and what is given back.
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { SERVICE_SOCKET } from "../../src/cni/index.ts";
import { FakeService, say } from "./fake-service.ts";
import { type Found, MARKS, PROBE_EXIT, readFindings, writeMarkedProbe, writeProbe } from "./probe.ts";
import { PROLOGUE } from "./prologue.ts";

const isHere = process.platform === "linux" && process.arch === "x64";
if (!isHere) console.log("the prologue is for x86-64 alone: its tests are skipped");

/** Of each property; more of them for a longer search. */
const RUNS = Number(process.env["PROLOGUE_RUNS"] ?? 60);
const folder = mkdtempSync(join(tmpdir(), "prologue-test-"));
const probe = join(folder, "probe");
const marked = join(folder, "marked");
const impatient = join(folder, "impatient");
let service: FakeService;

beforeAll(async () => {
  writeProbe(probe);
  writeMarkedProbe(marked);
  writeProbe(impatient, PROLOGUE.replace("REPLY_SECONDS = 180", "REPLY_SECONDS = 1"));
  service = await FakeService.start();
});
afterAll(async () => {
  await service[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

interface Call {
  readonly program?: string;
  readonly argv0?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string | Uint8Array | number;
}
interface Run {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly asked: readonly Buffer[];
  /** When the executable itself was reached. */
  readonly found?: Found;
}

async function call({
  program = probe,
  argv0 = "/opt/cni/bin/calico",
  args = [],
  env,
  stdin = conf(),
}: Call = {}): Promise<Run> {
  service.requests.length = 0;
  const child = Bun.spawn([program, ...args], {
    argv0,
    env: env ?? ADD,
    stdin: typeof stdin === "number" ? stdin : Buffer.from(stdin),
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr] = await Promise.all([new Response(child.stdout).bytes(), new Response(child.stderr).bytes()]);
  const code = await child.exited;
  expect(child.signalCode).toBeNull();
  const found = code === PROBE_EXIT ? { found: readFindings(stderr) } : {};
  return { code, stdout: Buffer.from(stdout), asked: [...service.requests], ...found };
}

const ADD = { CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_IFNAME: "eth0", CNI_PATH: "/opt/cni/bin" };
const conf = (more: object = {}): string => JSON.stringify({ name: "net1", service_socket: service.path, ...more });

/** Everything was given back: all of standard input, no descriptor left open. */
function expectDeclined(run: Run, stdin: string | Uint8Array, wasAsked = false): void {
  expect(run.code).toBe(PROBE_EXIT);
  expect(run.stdout.equals(Buffer.from(stdin))).toBeTrue();
  expect(run.found).toMatchObject({ lowestDescriptor: 3, isInputMarked: wasAsked });
}

/** A request's parts: what the service takes for the environment and for the configuration. */
function parts(request: Buffer | undefined): { env: unknown; text: Buffer } {
  if (request === undefined) throw new Error("nothing was asked");
  const line = request.indexOf("\n");
  return {
    env: (JSON.parse(request.toString("utf8", 0, line)) as { env: unknown }).env,
    text: request.subarray(line + 1),
  };
}

describe.skipIf(!isHere)("prologue", () => {
  for (const command of ["ADD", "DEL", "CHECK", "STATUS", "GC"])
    test(`${command} goes to the service, and its answer is printed`, async () => {
      const env = {
        PATH: "/bin",
        SECRET: "no",
        ...ADD,
        CNI_COMMAND: command,
        FELIX_INTERFACEPREFIX: "tap",
        FELIX_X: "1",
      };
      for (const [code, text] of [
        [0, '{"ips":[]}'],
        [1, '{"code":11}'],
        [0, ""],
        [0, "OK\n"],
      ] as const) {
        service.answer = say(`${code}\n${text}\n`);
        const run = await call({ env });
        expect([run.code, run.stdout.toString()]).toEqual([code, text]);
        const request = parts(run.asked[0]);
        expect(request.env).toEqual({ ...ADD, CNI_COMMAND: command, FELIX_INTERFACEPREFIX: "tap" });
        expect(request.text.toString()).toBe(conf());
      }
    });

  const others: readonly (Call & { readonly name: string })[] = [
    { name: "another name", argv0: "calicoctl" },
    { name: "a longer name", argv0: "/x/calico-ipam" },
    { name: "a name before", argv0: "/x/mycalico" },
    { name: "a folder of that name", argv0: "/calico/" },
    { name: "no name at all", argv0: "" },
    { name: "an argument", args: ["version"] },
    { name: "no environment", env: {} },
    { name: "no command", env: { PATH: "/bin", CNI_COMMANDS: "ADD" } },
    { name: "an empty command", env: { ...ADD, CNI_COMMAND: "" } },
    { name: "VERSION, which needs no service", env: { ...ADD, CNI_COMMAND: "VERSION" } },
    { name: "a longer command", env: { ...ADD, CNI_COMMAND: "ADDX" } },
    { name: "a shorter command", env: { ...ADD, CNI_COMMAND: "AD" } },
    { name: "a command in small letters", env: { ...ADD, CNI_COMMAND: "add" } },
    { name: "times are wanted", env: { ...ADD, CALICO_CNI_TIMES: "/tmp/x" } },
    { name: "a head that is too long", env: { ...ADD, CNI_ARGS: "x".repeat(70_000) } },
    { name: "a head that is too long once escaped", env: { ...ADD, CNI_ARGS: "\n".repeat(20_000) } },
  ];
  for (const { name, ...how } of others)
    test(`is not for the service: ${name}`, async () => {
      const run = await call({ ...how });
      expectDeclined(run, conf());
      expect(run.asked).toHaveLength(0);
    });

  test("the name may stand without a folder", async () => {
    service.answer = say("0\nfine\n");
    for (const argv0 of ["calico", "./calico", "//calico", "calico/calico"])
      expect((await call({ argv0 })).stdout.toString()).toBe("fine");
  });

  test("registers and stack are as they were, whenever the prologue gives up", async () => {
    const gone = conf({ service_socket: join(folder, "nobody") });
    const cases: readonly Call[] = [
      { argv0: "calicoctl" },
      { env: {} },
      { stdin: gone },
      { stdin: "{" },
      { stdin: "x".repeat(2_000_000) },
      { env: { ...ADD, CNI_ARGS: "x".repeat(70_000) } },
      {}, // declined by the service
    ];
    service.answer = say('{"declined":"not here"}\n\n');
    for (const how of cases) {
      const { found } = await call({ program: marked, ...how });
      const { r15, ...registers } = found!.registers;
      expect(registers).toEqual(MARKS as Record<string, bigint>);
      expect(r15).toBe(found!.stackPointer);
    }
  });

  test("whatever the service says that is no whole answer leaves it to the executable, which need not ask again", async () => {
    const replies = [
      "",
      "0",
      "0\n",
      "1\n",
      "0\n{",
      "0\n{}",
      "2\n{}\n",
      "x\n{}\n",
      "00\n{}\n",
      "\n\n\n",
      '{"declined":"x"}\n\n',
    ];
    for (const reply of replies) {
      service.answer = say(reply);
      expectDeclined(await call(), conf(), true);
    }
    service.answer = (connection) => connection.destroy();
    expectDeclined(await call(), conf(), true);
    service.answer = (connection) => connection.end(`0\n${"x".repeat(2_000_000)}\n`); // more than we have room for
    expectDeclined(await call(), conf(), true);
    const empty = await call({ stdin: "" }); // the usual service, which is not here or not ours
    expect([empty.code, empty.stdout.length, empty.found?.lowestDescriptor]).toEqual([PROBE_EXIT, 0, 3]);
  });

  test("an answer in pieces, and a long one, are printed whole", async () => {
    service.answer = (connection) => {
      connection.setNoDelay();
      for (const [i, byte] of [..."0\n{}\n"].entries())
        setTimeout(() => (i === 4 ? connection.end(byte) : connection.write(byte)), 5 * i);
    };
    expect((await call()).stdout.toString()).toBe("{}");
    const long = "größer ".repeat(30_000);
    service.answer = say(`1\n${long}\n`);
    const run = await call();
    expect([run.code, run.stdout.toString() === long]).toEqual([1, true]);
  });

  test("who does not answer is not waited for for ever", async () => {
    service.answer = () => {};
    const began = performance.now();
    expectDeclined(await call({ program: impatient }), conf(), true);
    expect(performance.now() - began).toBeGreaterThan(900);
  });

  test("nobody there, nobody listening, or no socket at all", async () => {
    const file = join(folder, "file");
    writeFileSync(file, "");
    for (const path of [
      join(folder, "nobody"),
      file,
      folder,
      `/${"x".repeat(106)}`,
      `/${"x".repeat(107)}`,
      "x".repeat(5000),
    ]) {
      const stdin = conf({ service_socket: path });
      expectDeclined(await call({ stdin }), stdin);
    }
  });

  test("standard input may be anything", async () => {
    service.answer = say("0\nfine\n");
    const large = conf({ comment: "x".repeat(700_000) });
    const whole = await call({ stdin: large });
    expect([whole.stdout.toString(), parts(whole.asked[0]).text.toString() === large]).toEqual(["fine", true]);
    for (const bytes of [800_000, 1 << 20, 5_000_000]) {
      const stdin = conf({ comment: "y".repeat(bytes) }); // too long for the prologue, not for the executable
      expectDeclined(await call({ stdin }), stdin);
    }
    const directory = openSync(folder, "r");
    try {
      expect(await call({ stdin: directory })).toMatchObject({ code: PROBE_EXIT, found: { lowestDescriptor: 3 } });
    } finally {
      closeSync(directory);
    }
  });

  test("standard streams may be closed, slow, or without a reader", async () => {
    service.answer = say("0\nfine\n");
    writeFileSync(join(folder, "conf"), conf());
    const shell = async (script: string): Promise<string> => {
      const child = Bun.spawn(["bash", "-c", script], {
        env: { PATH: process.env["PATH"], ...ADD, P: probe, F: folder },
        stdout: "pipe",
        stderr: "ignore",
      });
      return `${await new Response(child.stdout).text()}`;
    };
    const run = 'exec -a calico "$P"';
    expect(await shell(`(${run} <&-); echo $?`)).toBe(`${PROBE_EXIT}\n`);
    expect(await shell(`(${run} <$F/conf >&-); echo $?`)).toBe(`${PROBE_EXIT}\n`); // its descriptor would be the socket's
    expect(await shell(`(${run} <$F/conf 2>&-); echo $?`)).toBe(
      `{"name":"net1","service_socket":"${service.path}"}${PROBE_EXIT}\n`,
    );
    expect(await shell(`(head -c 9 $F/conf; sleep 0.05; tail -c +10 $F/conf) | (${run}); echo $?`)).toBe("fine0\n");
    expect(await shell(`((${run} <$F/conf); echo $? >$F/code) | true; cat $F/code`)).toBe("0\n");
  });

  test("variables arrive as they are, whatever they hold", async () => {
    service.answer = say("0\n\n");
    const text = fc.string({
      unit: fc.oneof(
        fc.constantFrom('"', "\\", "\n", "\t", "\x01", "\x1f", "\x7f", "=", "ü", "网", "😀"),
        fc.string({ minLength: 1, maxLength: 1 }),
      ),
    });
    const value = text.map((given) => given.replaceAll("\0", "").toWellFormed());
    await fc.assert(
      fc.asyncProperty(value, value, async (args, path) => {
        const env = { ...ADD, CNI_ARGS: args, CNI_PATH: path };
        const run = await call({ env });
        expect(run.code).toBe(0);
        expect(parts(run.asked[0]).env).toEqual(env);
      }),
      { numRuns: RUNS },
    );
  });

  test("a socket is asked only if the configuration names it in its own service_socket", async () => {
    service.answer = say("0\nfine\n");
    const { path } = service;
    const key = fc.constantFrom(
      "service_socket",
      "name",
      "ipam",
      'a"b',
      "service_socket\\",
      "\\",
      "service_socke",
      "{",
      "]",
    );
    const leaf = fc.constantFrom<unknown>(
      path,
      "",
      `${path}x`,
      "service_socket",
      null,
      1,
      true,
      '"service_socket"',
      "\\",
      "}{",
      "ü/x",
    );
    const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
      tree: fc.oneof(
        { depthSize: "small" },
        leaf,
        fc.array(tie("tree"), { maxLength: 3 }),
        fc.dictionary(key, tie("tree"), { maxKeys: 3 }),
      ),
    }));
    const document = fc
      .tuple(fc.dictionary(key, tree, { maxKeys: 4 }), fc.boolean(), fc.dictionary(key, tree, { maxKeys: 2 }))
      .map(([before, isNamed, after]) => ({ ...before, ...(isNamed ? { service_socket: path } : {}), ...after }));
    const spaced = fc.tuple(document, fc.constantFrom(undefined, 1, "\t"));
    let count = 0;
    await fc.assert(
      fc.asyncProperty(spaced, async ([value, space]) => {
        const stdin = JSON.stringify(value, null, space);
        const named = (value as { service_socket?: unknown }).service_socket;
        const run = await call({ stdin });
        if (named === path) {
          count++;
          expect(run.stdout.toString()).toBe("fine");
          expect(parts(run.asked[0]).text.toString()).toBe(stdin);
        } else {
          expect(run.asked).toHaveLength(0);
          if (run.code === PROBE_EXIT) expect(run.stdout.toString()).toBe(stdin);
        }
      }),
      { numRuns: RUNS },
    );
    expect(count).toBeGreaterThan(5);
  });

  const odd: readonly [name: string, stdin: () => string, isAsked: boolean][] = [
    ["named twice", () => `{"service_socket":"/x","service_socket":"${service.path}"}`, false],
    ["written with escapes", () => `{"service_socket":"${service.path.replace("/", "\\/")}"}`, false],
    ["a number", () => '{"service_socket":1}', false],
    ["empty", () => '{"service_socket":""}', false],
    ["cut short", () => `{"service_socket":"${service.path}"`, false],
    ["cut in the path", () => `{"service_socket":"${service.path}`, false],
    ["cut after a backslash", () => `{"a":"\\`, false],
    ["cut before the colon", () => '{"service_socket"  ', false],
    ["with white space", () => ` { "service_socket"\n :\t"${service.path}" }\n`, true],
    ["as a value", () => `{"a":"service_socket","b":["service_socket"],"service_socket":"${service.path}"}`, true],
    ["inside", () => `{"ipam":{"service_socket":"/x"},"service_socket":"${service.path}"}`, true],
    ["only inside a list", () => `["service_socket","${service.path}"]`, false],
  ];
  for (const [name, stdin, isAsked] of odd)
    test(`service_socket ${name}`, async () => {
      service.answer = say("0\nfine\n");
      const run = await call({ stdin: stdin() });
      expect(run.asked).toHaveLength(isAsked ? 1 : 0);
      if (isAsked) expect(run.stdout.toString()).toBe("fine");
      else if (!name.startsWith("only")) expectDeclined(run, stdin());
    });

  test("random bytes neither crash it nor get lost", async () => {
    service.answer = (connection, request) =>
      connection.end(Buffer.concat([Buffer.from("0\n"), request, Buffer.from("\n")]));
    const fragment = fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc
        .constantFrom('{"', '"', "{", "}", "[", "]", "\\", ":", '"service_socket"', '"service_socket":"', " ", "\0")
        .map((text) => Buffer.from(text)),
      fc.constant(0).map(() => Buffer.from(`"service_socket":"${service.path}"`)),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(fragment, { maxLength: 12 }), async (fragments) => {
        const stdin = Buffer.concat(fragments);
        const run = await call({ stdin });
        const [asked] = run.asked;
        if (asked === undefined && run.code !== PROBE_EXIT) return; // a service of this machine was asked and answered
        if (asked === undefined) expectDeclined(run, stdin, run.found?.isInputMarked);
        else expect([run.code, parts(asked).text.equals(stdin), run.stdout.equals(asked)]).toEqual([0, true, true]);
      }),
      { numRuns: RUNS },
    );
  });

  test("the service may say anything", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 60 }),
        fc.constantFrom("", "0", "0\n", "1\n"),
        fc.constantFrom("", "\n"),
        async (bytes, before, after) => {
          const reply = Buffer.concat([Buffer.from(before), bytes, Buffer.from(after)]);
          service.answer = (connection) => connection.end(reply);
          const run = await call();
          const isWhole = /^[01]\n/.test(reply.toString("latin1")) && reply.length > 2 && reply.at(-1) === 10;
          if (isWhole) expect([run.code, run.stdout.equals(reply.subarray(2, -1))]).toEqual([reply[0]! - 48, true]);
          else expectDeclined(run, conf(), true);
        },
      ),
      { numRuns: RUNS },
    );
  });

  test("without a word in the configuration the service is asked at its usual place", async () => {
    const path = `/tmp/prologue-${String(process.pid).padStart(8, "0")}.s`;
    expect(path).toHaveLength(SERVICE_SOCKET.length);
    expect(PROLOGUE).toContain(`usual_path:\n    .asciz "${SERVICE_SOCKET}"`);
    const program = join(folder, "usual");
    writeProbe(program, PROLOGUE.replace(SERVICE_SOCKET, path));
    await using there = await FakeService.start(path);
    there.answer = say("0\nthere\n");
    for (const stdin of ["{}", '{"ipam":{"service_socket":"/x"}}', "no JSON", "", "null", '["service_socket"]'])
      expect((await call({ program, stdin })).stdout.toString()).toBe("there");
  });
});
