package org.example.train;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;

/**
 * Starts the example app's worker: installed, again, updated with another model on a disk that is
 * full at the end of its weights, and again.
 */
final class Updates {
    public static void main(String[] arguments) throws IOException {
        final File parent = new File(arguments[0]);
        final ModelFolder first = start(parent, "first");
        Files.createDirectories(first.checkpoints().toPath());
        Files.createFile(first.checkpoints().toPath().resolve("step-1"));
        start(parent, "first");
        updateOnFullDisk(parent, first, "second");
        start(parent, "second");
        System.out.println(first.weights().exists() + " " + parent.list().length);
    }

    private static void updateOnFullDisk(File parent, ModelFolder old, String weights) {
        final int[] opened = {0};
        try {
            ModelFolder.in(parent, () -> {
                final InputStream bytes = stream(weights);
                return opened[0]++ == 0 ? bytes : new SequenceInputStream(bytes, new Full());
            });
        } catch (IOException error) {
            System.out.println(error.getMessage() + ", old weights: " + old.weights().exists());
        }
    }

    private static InputStream stream(String text) {
        return new ByteArrayInputStream(text.getBytes(StandardCharsets.UTF_8));
    }

    private static final class Full extends InputStream {
        @Override
        public int read() throws IOException {
            throw new IOException("disk full");
        }
    }

    private static ModelFolder start(File parent, String weights) throws IOException {
        final ModelFolder model = ModelFolder.in(parent, () -> stream(weights));
        final String text =
                new String(Files.readAllBytes(model.weights().toPath()), StandardCharsets.UTF_8);
        System.out.println(text + " " + model.checkpoints().exists());
        return model;
    }
}
