// The prologue in front of a small executable that tells how it was left: what is answered, and what is given back.
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { SERVICE_SOCKET, SILENCE_SECONDS } from "../../src/cni/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { type Answer, DeafService, FakeService, say } from "./fake-service.ts";
import { MARKS, PROBE_EXIT, writeMarkedProbe, writeProbe } from "./probe.ts";
import { ADD, type Call, expectDeclined, HERMETIC, isHere, parts, ProbeHost, USUAL } from "./probe-host.ts";
import { PROLOGUE } from "./prologue.ts";

let host: ProbeHost;
let marked = "";
let impatient = "";
beforeAll(async () => {
  host = await ProbeHost.create();
  marked = join(host.folder, "marked");
  impatient = join(host.folder, "impatient");
  writeMarkedProbe(marked, HERMETIC);
  writeProbe(impatient, HERMETIC.replace(`SILENCE_SECONDS = ${SILENCE_SECONDS}`, "SILENCE_SECONDS = 1"));
});
afterAll(() => host[Symbol.asyncDispose]());

describe.skipIf(!isHere)("prologue", () => {
  for (const command of ["ADD", "DEL", "CHECK", "GC"])
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
        host.service.answer = say(`${code}\n${text}\n`);
        const run = await host.call({ env });
        expect([run.code, run.stdout.toString()]).toEqual([code, text]);
        const request = parts(run.asked[0]);
        expect(request.env).toEqual({ ...ADD, CNI_COMMAND: command, FELIX_INTERFACEPREFIX: "tap" });
        expect(request.text.toString()).toBe(host.conf());
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
    { name: "STATUS, whose wait the executable limits", env: { ...ADD, CNI_COMMAND: "STATUS" } },
    { name: "a longer command", env: { ...ADD, CNI_COMMAND: "ADDX" } },
    { name: "a shorter command", env: { ...ADD, CNI_COMMAND: "AD" } },
    { name: "a command in small letters", env: { ...ADD, CNI_COMMAND: "add" } },
    { name: "times are wanted", env: { ...ADD, CALICO_CNI_TIMES: "/tmp/x" } },
    { name: "a head that is too long", env: { ...ADD, CNI_ARGS: "x".repeat(70_000) } },
    { name: "a head that is too long once escaped", env: { ...ADD, CNI_ARGS: "\n".repeat(20_000) } },
  ];
  for (const { name, ...how } of others)
    test(`is not for the service: ${name}`, async () => {
      const run = await host.call({ ...how });
      expectDeclined(run, host.conf());
      expect(run.asked).toHaveLength(0);
    });

  test("the name may stand without a folder", async () => {
    host.service.answer = say("0\nfine\n");
    for (const argv0 of ["calico", "./calico", "//calico", "calico/calico"])
      expect((await host.call({ argv0 })).stdout.toString()).toBe("fine");
  });

  test("registers and stack are as they were, whenever the prologue gives up", async () => {
    const gone = host.conf({ service_socket: join(host.folder, "nobody") });
    const cases: readonly Call[] = [
      { argv0: "calicoctl" },
      { env: {} },
      { stdin: gone },
      { stdin: "{" },
      { stdin: "x".repeat(2_000_000) },
      { env: { ...ADD, CNI_ARGS: "x".repeat(70_000) } },
      {}, // declined by the service
    ];
    host.service.answer = say('{"declined":"not here"}\n\n');
    for (const how of cases) {
      const { found } = await host.call({ program: marked, ...how });
      const { r15, ...registers } = found!.registers;
      expect(registers).toEqual(MARKS as Record<string, bigint>);
      expect(r15).toBe(found!.stackPointer);
    }
  });

  test("after a reply that is not complete the executable finds the mark of a broken connection", async () => {
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
      '{"declined":"x"}',
      " ",
      "   ",
      " 0",
      " 0\n",
      "  0\n{}",
      "0 \n{}\n",
      "\n0\n{}\n",
    ];
    for (const reply of replies) {
      host.service.answer = say(reply);
      expectDeclined(await host.call(), host.conf(), true);
    }
    host.service.answer = say('  {"declined":"x"}\n\n'); // nothing was done, so the executable may ask again
    expectDeclined(await host.call(), host.conf());
    host.service.answer = (connection) => connection.destroy();
    expectDeclined(await host.call(), host.conf(), true);
    host.service.answer = (connection) => connection.end(`0\n${"x".repeat(2_000_000)}\n`); // more than we have room for
    expectDeclined(await host.call(), host.conf(), true);
    const empty = await host.call({ stdin: "" }); // for the usual service, which is not there
    expect([empty.code, empty.stdout.length, empty.found?.lowestDescriptor]).toEqual([PROBE_EXIT, 0, 3]);
  });

  test("an answer in pieces, and a long one, are printed whole", async () => {
    host.service.answer = (connection) => {
      connection.setNoDelay();
      for (const [i, byte] of [..."0\n{}\n"].entries())
        setTimeout(() => (i === 4 ? connection.end(byte) : connection.write(byte)), 5 * i);
    };
    expect((await host.call()).stdout.toString()).toBe("{}");
    const long = "größer ".repeat(30_000);
    host.service.answer = say(`1\n${long}\n`);
    const run = await host.call();
    expect([run.code, run.stdout.toString() === long]).toEqual([1, true]);
  });

  test("the reply of a service that gives no sign of life is waited for without a time limit", async () => {
    for (const signs of ["", " "]) {
      const answer: Answer = (connection) => {
        connection.write(signs);
        setTimeout(() => connection.end("0\nfine\n"), 2500); // longer than the time limits of this probe
      };
      host.service.answer = answer;
      const run = await host.call({ program: impatient });
      expect([run.code, run.stdout.toString(), run.asked.length]).toEqual([0, "fine", 1]);
    }
  }, 20_000);

  test("a service that does not read, or does not accept, is given up, and the executable may ask again", async () => {
    await using deaf = await DeafService.start(join(host.folder, "deaf"));
    const stdin = host.conf({ service_socket: deaf.path, comment: "x".repeat(700_000) });
    expectDeclined(await host.call({ program: impatient, stdin }), stdin);
    await deaf.fill();
    const short = host.conf({ service_socket: deaf.path });
    const began = performance.now();
    expectDeclined(await host.call({ program: impatient, stdin: short }), short);
    expect(performance.now() - began).toBeWithin(900, 4000);
  });

  test("who gives a sign now and then is waited for", async () => {
    host.service.answer = async (connection) => {
      for (let i = 0; i < 5; i++) {
        await Bun.sleep(300);
        connection.write(" ");
      }
      connection.end("0\nfine\n");
    };
    const run = await host.call({ program: impatient });
    expect([run.code, run.stdout.toString()]).toEqual([0, "fine"]);
  });

  test("being stopped and continued while it waits does not disturb it", async () => {
    let stopped: () => void = () => {};
    const isStopped = new Promise<void>((resolve) => (stopped = resolve));
    const asked = new Promise<void>((resolve) => {
      host.service.answer = (connection) => {
        resolve();
        void isStopped.then(() => connection.end("0\nfine\n"));
      };
    });
    // A wait with a time limit ends with EINTR when its process is continued.
    const child = Bun.spawn([host.probe], {
      argv0: "calico",
      env: ADD,
      stdin: Buffer.from(host.conf()),
      stdout: "pipe",
    });
    await asked;
    for (let i = 0; i < 5; i++) {
      child.kill("SIGSTOP");
      await eventually(() => /\) T /.test(readFileSync(`/proc/${child.pid}/stat`, "utf8")));
      child.kill("SIGCONT");
      await eventually(() => /\) S /.test(readFileSync(`/proc/${child.pid}/stat`, "utf8")));
    }
    stopped();
    expect([await new Response(child.stdout).text(), await child.exited]).toEqual(["fine", 0]);
  });

  test("nobody there, nobody listening, or no socket at all", async () => {
    const file = join(host.folder, "file");
    writeFileSync(file, "");
    for (const path of [
      join(host.folder, "nobody"),
      file,
      host.folder,
      `/${"x".repeat(106)}`,
      `/${"x".repeat(107)}`,
      "x".repeat(5000),
    ]) {
      const stdin = host.conf({ service_socket: path });
      expectDeclined(await host.call({ stdin }), stdin);
    }
  });

  test("standard input may be anything", async () => {
    host.service.answer = say("0\nfine\n");
    const large = host.conf({ comment: "x".repeat(700_000) });
    const whole = await host.call({ stdin: large });
    expect([whole.stdout.toString(), parts(whole.asked[0]).text.toString() === large]).toEqual(["fine", true]);
    for (const bytes of [800_000, 1 << 20, 5_000_000]) {
      const stdin = host.conf({ comment: "y".repeat(bytes) }); // too long for the prologue, not for the executable
      expectDeclined(await host.call({ stdin }), stdin);
    }
    const directory = openSync(host.folder, "r");
    try {
      expect(await host.call({ stdin: directory })).toMatchObject({ code: PROBE_EXIT, found: { lowestDescriptor: 3 } });
    } finally {
      closeSync(directory);
    }
  });

  test("standard streams may be closed, slow, or without a reader", async () => {
    host.service.answer = say("0\nfine\n");
    writeFileSync(join(host.folder, "conf"), host.conf());
    const shell = async (script: string): Promise<string> => {
      const child = Bun.spawn(["bash", "-c", script], {
        env: { PATH: process.env["PATH"], ...ADD, P: host.probe, F: host.folder },
        stdout: "pipe",
        stderr: "ignore",
      });
      return `${await new Response(child.stdout).text()}`;
    };
    const run = 'exec -a calico "$P"';
    expect(await shell(`(${run} <&-); echo $?`)).toBe(`${PROBE_EXIT}\n`);
    expect(await shell(`(${run} <$F/conf >&-); echo $?`)).toBe(`${PROBE_EXIT}\n`); // its descriptor would be the socket's
    expect(await shell(`(${run} <$F/conf 2>&-); echo $?`)).toBe(
      `{"name":"net1","service_socket":"${host.service.path}"}${PROBE_EXIT}\n`,
    );
    expect(await shell(`(head -c 9 $F/conf; sleep 0.05; tail -c +10 $F/conf) | (${run}); echo $?`)).toBe("fine0\n");
    expect(await shell(`((${run} <$F/conf); echo $? >$F/code) | true; cat $F/code`)).toBe("0\n");
  });

  test("without a word in the configuration the service is asked at its usual place", async () => {
    expect(PROLOGUE).toContain(`usual_path:\n    .asciz "${SERVICE_SOCKET}"`);
    await using there = await FakeService.start(USUAL);
    there.answer = say("0\nthere\n");
    for (const stdin of ["{}", '{"ipam":{"service_socket":"/x"}}', "no JSON", "", "null", '["service_socket"]'])
      expect((await host.call({ stdin })).stdout.toString()).toBe("there");
  });
});
