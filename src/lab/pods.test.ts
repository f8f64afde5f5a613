import { expect, test } from "bun:test";
import type { Finished } from "./host.ts";
import { addAsRuntimesDo } from "./pods.ts";

const ok: Finished = { code: 0, stdout: '{"ips":[]}', stderr: "" };
const failed = (code: number): Finished => ({ code: 1, stdout: JSON.stringify({ code, msg: "no" }), stderr: "" });
const cases: readonly { readonly name: string; readonly adds: readonly Finished[]; readonly calls: string }[] = [
  { name: "at once", adds: [ok], calls: "ADD" },
  { name: "the node is busy at first", adds: [failed(11), ok], calls: "ADD DEL ADD" },
  { name: "the node stays busy", adds: [failed(11), failed(11), failed(11)], calls: "ADD DEL ADD DEL ADD" },
  { name: "another fault", adds: [failed(7)], calls: "ADD" },
  { name: "no answer that can be read", adds: [{ code: 1, stdout: "", stderr: "killed" }], calls: "ADD" },
];
for (const { name, adds, calls } of cases)
  test(`a pod is attached as runtimes do: ${name}`, () => {
    const left = [...adds];
    const asked: string[] = [];
    const added = addAsRuntimesDo((command) => {
      asked.push(command);
      return command === "DEL" ? ok : (left.shift() ?? ok);
    });
    expect({ added, calls: asked.join(" ") }).toEqual({ added: adds.at(-1) ?? ok, calls });
  });
