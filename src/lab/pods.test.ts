import { expect, test } from "bun:test";
import type { CommandResult } from "./host.ts";
import { addWithRetry } from "./pods.ts";

const ok: CommandResult = { code: 0, stdout: '{"ips":[]}', stderr: "" };
const failed = (code: number): CommandResult => ({ code: 1, stdout: JSON.stringify({ code, msg: "no" }), stderr: "" });
const cases: readonly { readonly name: string; readonly adds: readonly CommandResult[]; readonly calls: string }[] = [
  { name: "success", adds: [ok], calls: "ADD" },
  { name: "the node is busy once", adds: [failed(11), ok], calls: "ADD DEL ADD" },
  { name: "the node stays busy", adds: [failed(11), failed(11), failed(11)], calls: "ADD DEL ADD DEL ADD" },
  { name: "another error", adds: [failed(7)], calls: "ADD" },
  { name: "unreadable output", adds: [{ code: 1, stdout: "", stderr: "killed" }], calls: "ADD" },
];
for (const { name, adds, calls } of cases)
  test(`ADD is retried like container runtimes do: ${name}`, () => {
    const left = [...adds];
    const commands: string[] = [];
    const added = addWithRetry((command) => {
      commands.push(command);
      return command === "DEL" ? ok : (left.shift() ?? ok);
    });
    expect({ added, calls: commands.join(" ") }).toEqual({ added: adds.at(-1) ?? ok, calls });
  });
