import { expect, test } from "bun:test";
import { findSubjectFault } from "./commit-subjects.ts";

const cases = [
  { subject: "dataplane: keep routes of unknown tables", fault: undefined },
  { subject: "lib, calicoctl: parse command lines with typed tables", fault: undefined },
  { subject: "node: pass the signal to child processes", fault: undefined },
  { subject: "keep routes of unknown tables", fault: "form" },
  { subject: "dataplane: Keep routes", fault: '"Keep"' },
  { subject: "dataplane: keeps routes", fault: '"keeps"' },
  { subject: "dataplane: keeping routes", fault: '"keeping"' },
  { subject: "cni: a namespace that cannot be opened is not one that is gone", fault: '"a"' },
  { subject: `docs: ${"describe ".repeat(9)}`, fault: "87 characters" },
];
for (const { subject, fault } of cases)
  test(`the subject "${subject.slice(0, 60)}" is ${fault === undefined ? "accepted" : "rejected"}`, () => {
    if (fault === undefined) expect(findSubjectFault(subject)).toBeUndefined();
    else expect(findSubjectFault(subject)).toContain(fault);
  });
