module @jit_decode_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x32xf32>, %arg1: tensor<4x12x4x8xbf16> {tf.aliasing_output = 1 : i32}, %arg2: tensor<4x12x4x8xbf16> {tf.aliasing_output = 2 : i32}, %arg3: tensor<4xi32>, %arg4: tensor<32x32xf32>, %arg5: tensor<32x32xf32>, %arg6: tensor<32x32xf32>, %arg7: tensor<32x32xf32>) -> (tensor<4x32xf32> {jax.result_info = "result[0]"}, tensor<4x12x4x8xbf16> {jax.result_info = "result[1]"}, tensor<4x12x4x8xbf16> {jax.result_info = "result[2]"}) {
    %0 = stablehlo.dot_general %arg0, %arg4, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
    %1 = stablehlo.reshape %0 : (tensor<4x32xf32>) -> tensor<4x4x8xf32>
    %2 = stablehlo.dot_general %arg0, %arg5, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
    %3 = stablehlo.reshape %2 : (tensor<4x32xf32>) -> tensor<4x4x8xf32>
    %4 = stablehlo.dot_general %arg0, %arg6, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
    %5 = stablehlo.reshape %4 : (tensor<4x32xf32>) -> tensor<4x4x8xf32>
    %6 = stablehlo.convert %3 : (tensor<4x4x8xf32>) -> tensor<4x4x8xbf16>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 2, 3] : (tensor<4x4x8xbf16>) -> tensor<4x1x4x8xbf16>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %8 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %9 = stablehlo.compare LT, %arg3, %8, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %c_0 = stablehlo.constant dense<12> : tensor<i32>
    %10 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %11 = stablehlo.add %arg3, %10 : tensor<4xi32>
    %12 = stablehlo.select %9, %11, %arg3 : tensor<4xi1>, tensor<4xi32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %14 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<4x1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %15 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<4x1xi32>
    %16 = stablehlo.concatenate %13, %14, %15, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x3xi32>
    %c_3 = stablehlo.constant dense<[11, 0, 0]> : tensor<3xi32>
    %c_4 = stablehlo.constant dense<2147483647> : tensor<i32>
    %17 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<3xi32>
    %18 = stablehlo.minimum %c_3, %17 : tensor<3xi32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [1] : (tensor<3xi32>) -> tensor<4x3xi32>
    %c_5 = stablehlo.constant dense<0> : tensor<i32>
    %20 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<i32>) -> tensor<4x3xi32>
    %21 = stablehlo.clamp %20, %16, %19 : tensor<4x3xi32>
    %22 = "stablehlo.scatter"(%arg1, %21, %7) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 2, 3], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1, 2, 3], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg8: tensor<bf16>, %arg9: tensor<bf16>):
      stablehlo.return %arg9 : tensor<bf16>
    }) : (tensor<4x12x4x8xbf16>, tensor<4x3xi32>, tensor<4x1x4x8xbf16>) -> tensor<4x12x4x8xbf16>
    %23 = stablehlo.convert %5 : (tensor<4x4x8xf32>) -> tensor<4x4x8xbf16>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 2, 3] : (tensor<4x4x8xbf16>) -> tensor<4x1x4x8xbf16>
    %c_6 = stablehlo.constant dense<0> : tensor<i32>
    %25 = stablehlo.broadcast_in_dim %c_6, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %26 = stablehlo.compare LT, %arg3, %25, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %c_7 = stablehlo.constant dense<12> : tensor<i32>
    %27 = stablehlo.broadcast_in_dim %c_7, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %28 = stablehlo.add %arg3, %27 : tensor<4xi32>
    %29 = stablehlo.select %26, %28, %arg3 : tensor<4xi1>, tensor<4xi32>
    %30 = stablehlo.broadcast_in_dim %29, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %31 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i32>) -> tensor<4x1xi32>
    %c_9 = stablehlo.constant dense<0> : tensor<i32>
    %32 = stablehlo.broadcast_in_dim %c_9, dims = [] : (tensor<i32>) -> tensor<4x1xi32>
    %33 = stablehlo.concatenate %30, %31, %32, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x3xi32>
    %c_10 = stablehlo.constant dense<[11, 0, 0]> : tensor<3xi32>
    %c_11 = stablehlo.constant dense<2147483647> : tensor<i32>
    %34 = stablehlo.broadcast_in_dim %c_11, dims = [] : (tensor<i32>) -> tensor<3xi32>
    %35 = stablehlo.minimum %c_10, %34 : tensor<3xi32>
    %36 = stablehlo.broadcast_in_dim %35, dims = [1] : (tensor<3xi32>) -> tensor<4x3xi32>
    %c_12 = stablehlo.constant dense<0> : tensor<i32>
    %37 = stablehlo.broadcast_in_dim %c_12, dims = [] : (tensor<i32>) -> tensor<4x3xi32>
    %38 = stablehlo.clamp %37, %33, %36 : tensor<4x3xi32>
    %39 = "stablehlo.scatter"(%arg2, %38, %24) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 2, 3], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1, 2, 3], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg8: tensor<bf16>, %arg9: tensor<bf16>):
      stablehlo.return %arg9 : tensor<bf16>
    }) : (tensor<4x12x4x8xbf16>, tensor<4x3xi32>, tensor<4x1x4x8xbf16>) -> tensor<4x12x4x8xbf16>
    %40 = stablehlo.convert %1 : (tensor<4x4x8xf32>) -> tensor<4x4x8xbf16>
    %41 = stablehlo.dot_general %40, %22, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [HIGHEST, HIGHEST] : (tensor<4x4x8xbf16>, tensor<4x12x4x8xbf16>) -> tensor<4x4x12xf32>
    %42 = stablehlo.iota dim = 0 : tensor<12xi32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [2] : (tensor<12xi32>) -> tensor<1x1x12xi32>
    %44 = stablehlo.broadcast_in_dim %arg3, dims = [0] : (tensor<4xi32>) -> tensor<4x1x1xi32>
    %45 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2] : (tensor<1x1x12xi32>) -> tensor<4x1x12xi32>
    %46 = stablehlo.broadcast_in_dim %44, dims = [0, 1, 2] : (tensor<4x1x1xi32>) -> tensor<4x1x12xi32>
    %47 = stablehlo.compare LE, %45, %46, SIGNED : (tensor<4x1x12xi32>, tensor<4x1x12xi32>) -> tensor<4x1x12xi1>
    %cst = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %48 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x4x12xf32>
    %49 = stablehlo.divide %41, %48 : tensor<4x4x12xf32>
    %cst_13 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %50 = call @_where(%47, %49, %cst_13) : (tensor<4x1x12xi1>, tensor<4x4x12xf32>, tensor<f32>) -> tensor<4x4x12xf32>
    %cst_14 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %51 = stablehlo.reduce(%50 init: %cst_14) applies stablehlo.maximum across dimensions = [2] : (tensor<4x4x12xf32>, tensor<f32>) -> tensor<4x4xf32>
    %cst_15 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %52 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
    %53 = stablehlo.maximum %52, %51 : tensor<4x4xf32>
    %54 = stablehlo.broadcast_in_dim %53, dims = [0, 1] : (tensor<4x4xf32>) -> tensor<4x4x1xf32>
    %55 = stablehlo.broadcast_in_dim %54, dims = [0, 1, 2] : (tensor<4x4x1xf32>) -> tensor<4x4x12xf32>
    %56 = stablehlo.subtract %50, %55 : tensor<4x4x12xf32>
    %57 = stablehlo.exponential %56 : tensor<4x4x12xf32>
    %cst_16 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %58 = stablehlo.reduce(%57 init: %cst_16) applies stablehlo.add across dimensions = [2] : (tensor<4x4x12xf32>, tensor<f32>) -> tensor<4x4xf32>
    %59 = stablehlo.broadcast_in_dim %58, dims = [0, 1] : (tensor<4x4xf32>) -> tensor<4x4x1xf32>
    %60 = stablehlo.broadcast_in_dim %59, dims = [0, 1, 2] : (tensor<4x4x1xf32>) -> tensor<4x4x12xf32>
    %61 = stablehlo.divide %57, %60 : tensor<4x4x12xf32>
    %62 = stablehlo.convert %61 : (tensor<4x4x12xf32>) -> tensor<4x4x12xbf16>
    %63 = stablehlo.dot_general %62, %39, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x4x12xbf16>, tensor<4x12x4x8xbf16>) -> tensor<4x4x8xf32>
    %64 = stablehlo.reshape %63 : (tensor<4x4x8xf32>) -> tensor<4x32xf32>
    %65 = stablehlo.dot_general %64, %arg7, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
    return %65, %22, %39 : tensor<4x32xf32>, tensor<4x12x4x8xbf16>, tensor<4x12x4x8xbf16>
  }
  func.func private @_where(%arg0: tensor<4x1x12xi1>, %arg1: tensor<4x4x12xf32>, %arg2: tensor<f32>) -> tensor<4x4x12xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [0, 1, 2] : (tensor<4x1x12xi1>) -> tensor<4x4x12xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4x4x12xf32>
    %3 = stablehlo.select %1, %arg1, %2 : tensor<4x4x12xi1>, tensor<4x4x12xf32>
    return %3 : tensor<4x4x12xf32>
  }
}
