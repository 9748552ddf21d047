package pockengine;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** The description of an input, an output or a parameter: its name, type and shape. */
public final class Tensor {
    /** Types of elements, in the order of pe_dtype. */
    public enum Type { F32, I32, I64, BOOL, BF16, F16, I8, U8 }

    private static final int RATE = 16;
    private static final int STEP = 32;
    private static final int SEED = 64;

    private final String name;
    private final Type type;
    private final long flags;
    private final long bytes;
    private final long[] shape;

    Tensor(String name, long[] numbers) {
        this.name = name;
        type = Type.values()[(int) numbers[0]];
        flags = numbers[1];
        bytes = numbers[2];
        shape = Arrays.copyOfRange(numbers, 3, numbers.length);
    }

    /** Returns its name in the model. */
    public String name() {
        return name;
    }

    /** Returns the type of its elements. */
    public Type type() {
        return type;
    }

    /** Returns its dimensions; none for a scalar. */
    public long[] shape() {
        return shape.clone();
    }

    /** Returns its size in bytes. */
    public long bytes() {
        return bytes;
    }

    /** Returns a direct buffer of its size, in this machine's byte order. */
    public ByteBuffer newBuffer() {
        if (bytes > Integer.MAX_VALUE) {
            throw new IllegalArgumentException(
                    this + " has " + bytes + " bytes; a buffer of Java holds 2 GB");
        }
        return ByteBuffer.allocateDirect((int) bytes).order(ByteOrder.nativeOrder());
    }

    /** Whether it is the rate, the step or the seed, which a training sets itself. */
    boolean isControl() {
        return (flags & (RATE | STEP | SEED)) != 0;
    }

    /** Whether it is the rate or the step, which only an entry that trains reads. */
    boolean isOfTraining() {
        return (flags & (RATE | STEP)) != 0;
    }

    /** Refuses a buffer that C cannot write. */
    static void requireWritable(String name, ByteBuffer buffer) {
        if (buffer.isReadOnly()) {
            throw new IllegalArgumentException(
                    "the buffer for " + name + " is read-only: make it by Tensor.newBuffer()");
        }
    }

    /** Returns `buffer`, if C can read the tensor there. */
    ByteBuffer check(ByteBuffer buffer) {
        if (!buffer.isDirect()) {
            throw new IllegalArgumentException(
                    "the buffer for " + name + " is not direct: make it by Tensor.newBuffer()");
        }
        if (buffer.capacity() != bytes) {
            throw new IllegalArgumentException(
                    "the buffer for " + this + " has " + buffer.capacity() + " bytes, not " + bytes);
        }
        if (buffer.order() != ByteOrder.nativeOrder()) {
            throw new IllegalArgumentException(
                    "the buffer for " + name + " has another byte order than this machine: call "
                            + "order(ByteOrder.nativeOrder())");
        }
        return buffer;
    }

    @Override
    public String toString() {
        return name + ": " + type + Arrays.toString(shape);
    }
}
