// Whatever comes from outside, variables, configuration or reply, the prologue passes on whole or gives back whole.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { say } from "./fake-service.ts";
import { ADD, expectDeclined, isHere, parts, ProbeHost } from "./probe-host.ts";

let host: ProbeHost;
beforeAll(async () => {
  host = await ProbeHost.create();
});
afterAll(() => host[Symbol.asyncDispose]());

/** More of them for a longer search. */
const RUNS = Number(process.env["PROLOGUE_RUNS"] ?? 60);

describe.skipIf(!isHere)("anything", () => {
  test("variables arrive as they are, whatever they hold", async () => {
    host.service.answer = say("0\n\n");
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
        const run = await host.call({ env });
        expect(run.code).toBe(0);
        expect(parts(run.asked[0]).env).toEqual(env);
      }),
      { numRuns: RUNS },
    );
  });

  test("random bytes neither crash it nor get lost", async () => {
    host.service.answer = (connection, request) =>
      connection.end(Buffer.concat([Buffer.from("0\n"), request, Buffer.from("\n")]));
    const fragment = fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc
        .constantFrom('{"', '"', "{", "}", "[", "]", "\\", ":", '"service_socket"', '"service_socket":"', " ", "\0")
        .map((text) => Buffer.from(text)),
      fc.constant(0).map(() => Buffer.from(`"service_socket":"${host.service.path}"`)),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(fragment, { maxLength: 12 }), async (fragments) => {
        const stdin = Buffer.concat(fragments);
        const run = await host.call({ stdin });
        const [asked] = run.asked;
        if (asked === undefined) expectDeclined(run, stdin);
        else expect([run.code, parts(asked).text.equals(stdin), run.stdout.equals(asked)]).toEqual([0, true, true]);
      }),
      { numRuns: RUNS },
    );
  });

  test("the service may say anything", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 60 }),
        fc.constantFrom("", "0", "0\n", "1\n", " 0\n", "   1\n"),
        fc.constantFrom("", "\n"),
        async (bytes, before, after) => {
          const reply = Buffer.concat([Buffer.from(before), bytes, Buffer.from(after)]);
          host.service.answer = (connection) => connection.end(reply);
          const run = await host.call();
          const head = /^ *([01])\n/.exec(reply.toString("latin1"));
          const isWhole = head !== null && reply.length > head[0].length && reply.at(-1) === 10;
          if (isWhole)
            expect([run.code, run.stdout.equals(reply.subarray(head[0].length, -1))]).toEqual([Number(head[1]), true]);
          else expectDeclined(run, host.conf(), true);
        },
      ),
      { numRuns: RUNS },
    );
  });
});
