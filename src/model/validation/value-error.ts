// Distinguishes errors caused by an invalid value, which are reported, from errors in the program, which are rethrown.
import { WrongShape } from "../../lib/encoding/json-reader.ts";
import { SelectorError } from "../selector/selector.ts";

/** Called for each problem of a value; the valid parts of the value are used. */
export type ReportProblem = (problem: string) => void;

/** The value cannot be used at all. The message gives the reason. */
export class NotConvertible extends Error {
  override readonly name = "NotConvertible";
}

/** Whether the error was caused by an invalid value. */
export const isValueError = (error: unknown): error is Error =>
  error instanceof WrongShape || error instanceof SelectorError || error instanceof NotConvertible;
