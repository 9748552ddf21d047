package org.example.train;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;

/** Starts the example app's worker thrice: installed, again, and updated with another model. */
final class Updates {
    public static void main(String[] arguments) throws IOException {
        final File parent = new File(arguments[0]);
        final ModelFolder first = start(parent, "first");
        Files.createDirectories(first.checkpoints().toPath());
        Files.createFile(first.checkpoints().toPath().resolve("step-1"));
        start(parent, "first");
        start(parent, "second");
        System.out.println(first.weights().exists() + " " + parent.list().length);
    }

    private static ModelFolder start(File parent, String weights) throws IOException {
        final byte[] bytes = weights.getBytes(StandardCharsets.UTF_8);
        final ModelFolder model = ModelFolder.in(parent, () -> new ByteArrayInputStream(bytes));
        final String text =
                new String(Files.readAllBytes(model.weights().toPath()), StandardCharsets.UTF_8);
        System.out.println(text + " " + model.checkpoints().exists());
        return model;
    }
}
