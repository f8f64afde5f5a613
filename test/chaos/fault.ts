// `fault.ts break LAB WHAT…` and `fault.ts heal LAB`: in a process of its own, so that who watches the lab meanwhile is
// not held up.
import { breakLab, healLab } from "../../src/lab/faults.ts";
import { Lab } from "../../src/lab/lab.ts";

const [verb, name = "", ...words] = process.argv.slice(2);
const lab = Lab.open(name);
if (verb === "break") breakLab(lab, words);
else await healLab(lab);
