// Telling wrong values from our own mistakes, wherever objects somebody else wrote are converted.
import { WrongShape } from "../../lib/encoding/json-reader.ts";
import { SelectorError } from "../selector/selector.ts";

/** Told of each thing that was wrong with a value that is otherwise used. */
export type ReportProblem = (problem: string) => void;

/** A value is no use at all; says why. */
export class NotConvertible extends Error {
  override readonly name = "NotConvertible";
}

/** Whether an error says that a value is wrong, rather than that we are. */
export const isValueError = (error: unknown): error is Error =>
  error instanceof WrongShape || error instanceof SelectorError || error instanceof NotConvertible;
