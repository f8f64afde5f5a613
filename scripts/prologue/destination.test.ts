// Which service the prologue asks: what the configuration says, whatever else it holds.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { say } from "./fake-service.ts";
import { expectDeclined, isHere, parts, ProbeHost } from "./probe-host.ts";

let host: ProbeHost;
beforeAll(async () => {
  host = await ProbeHost.create();
});
afterAll(() => host[Symbol.asyncDispose]());

/** More of them for a longer search. */
const RUNS = Number(process.env["PROLOGUE_RUNS"] ?? 60);

describe.skipIf(!isHere)("destination", () => {
  test("a socket is asked only if the configuration names it in its own service_socket", async () => {
    host.service.answer = say("0\nfine\n");
    const { path } = host.service;
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
        const run = await host.call({ stdin });
        if (named === path) {
          count++;
          expect(run.stdout.toString()).toBe("fine");
          expect(parts(run.asked[0]).text.toString()).toBe(stdin);
        } else {
          expect(run.asked).toHaveLength(0);
          expectDeclined(run, stdin);
        }
      }),
      { numRuns: RUNS },
    );
    expect(count).toBeGreaterThan(5);
  });

  const odd: readonly [name: string, stdin: () => string, isAsked: boolean][] = [
    ["named twice", () => `{"service_socket":"/x","service_socket":"${host.service.path}"}`, false],
    ["written with escapes", () => `{"service_socket":"${host.service.path.replace("/", "\\/")}"}`, false],
    ["a number", () => '{"service_socket":1}', false],
    ["empty", () => '{"service_socket":""}', false],
    ["cut short", () => `{"service_socket":"${host.service.path}"`, false],
    ["cut in the path", () => `{"service_socket":"${host.service.path}`, false],
    ["cut after a backslash", () => `{"a":"\\`, false],
    ["cut before the colon", () => '{"service_socket"  ', false],
    ["with white space", () => ` { "service_socket"\n :\t"${host.service.path}" }\n`, true],
    ["as a value", () => `{"a":"service_socket","b":["service_socket"],"service_socket":"${host.service.path}"}`, true],
    ["inside", () => `{"ipam":{"service_socket":"/x"},"service_socket":"${host.service.path}"}`, true],
    ["only inside a list", () => `["service_socket","${host.service.path}"]`, false],
  ];
  for (const [name, stdin, isAsked] of odd)
    test(`service_socket ${name}`, async () => {
      host.service.answer = say("0\nfine\n");
      const run = await host.call({ stdin: stdin() });
      expect(run.asked).toHaveLength(isAsked ? 1 : 0);
      if (isAsked) expect(run.stdout.toString()).toBe("fine");
      else expectDeclined(run, stdin());
    });
});
